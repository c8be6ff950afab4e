"""Fission: one noisy release as two whose noises are independent.

A model made from tables and judged on the same tables is flattered: it has learnt their noise, and the noise is there
again when it is judged. For tables x with Gaussian noise of scale σ and fresh w of the same scale,

    x + a·w     noise variance (1 + a²)·σ²
    x − w / a   noise variance (1 + 1/a²)·σ²

are independent given the data: their covariance is σ² − σ² = 0. Models are made from the first and judged on the
second. Clients train one by one, so their part gets little extra noise (a < 1); the population they are judged on is
the sum of many clients, whose noise matters less.
"""

from __future__ import annotations

import numpy as np

from ..estimation import Releases, estimate
from ..estimation.estimates import Estimates
from ..estimation.shrinkage import shrink

#: The factor a: a quarter more noise variance to train on, five times the variance to judge on.
FACTOR = 0.5


def fission(
    pool: Releases, rng: np.random.Generator, *, factor: float = FACTOR
) -> tuple[Estimates, Estimates]:
    """Estimates to train on and estimates to judge on, of independent noise.

    Without noise both are the estimates themselves.
    """
    whole = estimate(pool)
    if not np.any(whole.sigmas):
        return whole, whole
    noise = rng.standard_normal(pool.matrix.shape) * whole.layout.per_cell(whole.sigmas)
    first = pool.matrix + factor * noise
    second = pool.matrix - noise / factor
    return (
        _estimates(whole, first, np.sqrt(1 + factor**2)),
        _estimates(whole, second, np.sqrt(1 + 1 / factor**2)),
    )


def _estimates(whole: Estimates, matrix: np.ndarray, scale: float) -> Estimates:
    sigmas = whole.sigmas * scale
    found = shrink(matrix, whole.layout, sigmas)
    return Estimates(
        whole.clients, whole.schema, whole.layout, found.cells, found.totals, found.marginals, whole.estimator, sigmas,
        found.posterior,
    )  # fmt: skip
