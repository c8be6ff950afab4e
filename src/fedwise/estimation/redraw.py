"""Redraw: the pool as it might have been released with another draw of the noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .estimates import Estimates, Floats
from .joint import JointTables
from .shrinkage import shrink

#: Clients × cells up to which redraws are kept.
_SMALL = 500_000


def redrawn(estimates: Estimates, seed: int, number: int) -> Estimates:
    """The redraw of this seed and number. The first are kept: every question about a pool asks for the same."""
    return estimates.cache.get(
        (seed, number),
        lambda: redraw(estimates, np.random.default_rng([seed & 0xFFFFFFFFFFFFFFFF, 13, number])),
        keep=estimates.cells.size <= _SMALL,
    )


def redraw(estimates: Estimates, rng: np.random.Generator) -> Estimates:
    """Estimates of a new release of the same clients: a parametric bootstrap.

    The estimated cells stand for the true counts. Fresh normal noise of the scale of its release is added to
    every cell of every client, independently, and the same estimator runs again, its between-client
    variances included. A client that is chosen again in most redraws was not chosen by the noise alone.

    Shrunk estimates differ less from one another than the true tables do, so frequencies over redraws
    are those of a pool somewhat harder to tell apart than the real one. Without noise the estimates
    come back as they are.

    Parameters
    ----------
    rng
        Randomness; equal generators give equal redraws.
    """
    if not np.any(estimates.sigmas):
        return estimates
    scale = estimates.layout.per_cell(estimates.sigmas)
    noisy = estimates.cells + rng.standard_normal(estimates.cells.shape) * scale
    if estimates.estimator == "plain":
        return Estimates.plain(estimates.clients, estimates.schema, estimates.layout, noisy, estimates.sigmas)
    return estimated_again(estimates, noisy, estimates.sigmas)


def estimated_again(
    estimates: Estimates, cells: Floats, sigmas: Floats, joint: JointTables | None = None
) -> Estimates:
    """Shrinkage estimates of other tables of the same clients, with noise of these scales."""
    found = shrink(cells, estimates.layout, sigmas)
    return replace(
        estimates,
        cells=found.cells,
        marginals=found.marginals,
        totals=found.totals,
        sigmas=sigmas,
        posterior=found.posterior,
        released=cells,
        joint=joint,
    )
