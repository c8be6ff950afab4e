"""Fission: the two halves of a pool's noise that a rehearsal trains and judges on."""

from __future__ import annotations

import numpy as np

from ..estimation import Releases, estimate
from ..estimation.estimates import Estimates
from ..estimation.fission import split_noise


def fission(pool: Releases, rng: np.random.Generator) -> tuple[Estimates, Estimates]:
    """Estimates to train on and estimates to judge on, of independent noise: see `fedwise.estimation.fission`.

    Without noise both are the estimates themselves.
    """
    whole = estimate(pool)
    return split_noise(whole, rng) or (whole, whole)
