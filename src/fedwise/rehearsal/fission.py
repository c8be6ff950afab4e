"""Fission: one noisy release as two whose noises are independent.

A model made from tables and judged on the same tables is flattered: it has learnt their noise, and the noise is there
again when it is judged. For tables x with Gaussian noise of scale σ and fresh w of the same scale,

    x + w    and    x − w    noise variance 2σ² each

are independent given the data: their covariance is σ² − σ² = 0. Models are made from the first and judged on the
second. The fresh noise also tells how much the released one matters: w is drawn anew for every stage and has the scale
of the noise in x, so results vary over stages about as they would over releases.
"""

from __future__ import annotations

import numpy as np

from ..estimation import Releases, estimate
from ..estimation.estimates import Estimates
from ..estimation.redraw import estimated_again


def fission(pool: Releases, rng: np.random.Generator) -> tuple[Estimates, Estimates]:
    """Estimates to train on and estimates to judge on, of independent noise.

    Without noise both are the estimates themselves.
    """
    whole = estimate(pool)
    if not np.any(whole.sigmas):
        return whole, whole
    noise = rng.standard_normal(pool.matrix.shape) * whole.layout.per_cell(whole.sigmas)
    sigmas = whole.sigmas * np.sqrt(2.0)
    return (
        estimated_again(whole, pool.matrix + noise, sigmas),
        estimated_again(whole, pool.matrix - noise, sigmas),
    )
