"""Objective: the Potential Federation Loss, its weights and its terms."""

from .pfl import Terms as Terms
from .weights import Weights as Weights
