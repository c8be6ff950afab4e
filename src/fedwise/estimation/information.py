"""Old home of `standard_error` (now in `uncertainty`) and of the gradient (in `objective.information`)."""

from ..objective.information import gradient as gradient
from ..objective.information import information as information
from ..objective.information import pointwise as pointwise
from .uncertainty import standard_error as standard_error
