"""Fission: one noisy release as two whose noises are independent.

A model made from tables and judged on the same tables is flattered: it has learnt their noise, and the noise is there
again when it is judged. For tables x with Gaussian noise of scale σ and fresh w of the same scale,

    x + w    and    x − w    noise variance 2σ² each

are independent given the data: their covariance is σ² − σ² = 0. Models are made from the first and judged on the
second. The fresh noise also tells how much the released one matters: w is drawn anew for every split and has the scale
of the noise in x, so results vary over splits about as they would over releases.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .estimates import Estimates
from .joint import JointTables
from .redraw import estimated_again


def split_noise(estimates: Estimates, rng: np.random.Generator) -> tuple[Estimates, Estimates] | None:
    """Estimates of two halves of independent noise; ``None`` where there is no noise or no released counts."""
    if estimates.released is None or not np.any(estimates.sigmas):
        return None
    if estimates.joint is not None:
        # Pairs are sums of these: split before, or what the halves share would be left in one of them.
        return _both(estimates, *estimates.joint.split(rng))
    scale = estimates.layout.per_cell(estimates.sigmas)
    noise = rng.standard_normal(estimates.released.shape) * scale
    sigmas = estimates.sigmas * np.sqrt(2.0)
    halves = np.stack([estimates.released + noise, estimates.released - noise])
    first, second = estimated_again(estimates, halves, sigmas)
    return first, second


def _both(estimates: Estimates, first: JointTables, second: JointTables) -> tuple[Estimates, Estimates]:
    (cells, sigmas), (others, _) = first.pairs, second.pairs
    made, again = estimated_again(estimates, np.stack([cells, others]), sigmas)
    return replace(made, joint=first), replace(again, joint=second)
