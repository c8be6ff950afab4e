"""Variation: tables of features among themselves that differ between clients as much as the clients do.

An estimate that is drawn towards the pool is nearest to the truth on average, cell by cell, but clients' estimates
differ less than clients. For records drawn from them that is no matter of rounding: where features go together less
than in the rows, each tells more that the others do not, and a network's scores spread another way. With d̂ the
estimated deviation of a client's table from what the pool predicts for it and V what is uncertain about it,

    E|d|² = |d̂|² + tr V,

so the deviation is lengthened by √(1 + tr V/|d̂|²) (constrained Bayes estimation: Louis 1984, Ghosh 1992). Squares count
by the inverse of the predicted share. Tables with groups or classes stay as estimated: there the label's relation to a
feature matters, which noise in the same direction would spoil. Derivation and figures: docs/theory/doubles.md.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from .estimates import Estimates, Posterior
from .fitting import fit
from .shrinkage import FLOOR

Floats = npt.NDArray[np.float64]

#: Most that a deviation is lengthened: beyond it what is known of its direction is mostly noise.
_MOST = 3.0
#: Least predicted share, so that squares over it stay finite.
_LEAST = 1e-5


def varied(estimates: Estimates) -> Estimates:
    """The estimates with tables of features among themselves that vary as the clients' do. Without noise the same."""
    posterior, layout = estimates.posterior, estimates.layout
    if posterior is None or not np.any(estimates.sigmas):
        return estimates
    cells = estimates.cells.copy()
    for j in among_features(estimates):
        cells[:, layout.slice(j)] = _lengthened(estimates, posterior, j)
    return replace(estimates, cells=cells)


def among_features(estimates: Estimates) -> list[int]:
    """Which tables are of two features, without groups and classes."""
    apart = {estimates.schema.target, *estimates.schema.sensitive}
    return [j for j, pair in enumerate(estimates.layout.pairs) if not apart & {*pair}]


def _lengthened(estimates: Estimates, posterior: Posterior, j: int) -> Floats:
    """Counts of one table of every client, its deviation from the prediction lengthened: shape (clients, cells)."""
    layout, sizes = estimates.layout, estimates.totals[:, None]
    here, (x, y), (a, b) = layout.slice(j), layout.sides(j), layout.shapes[j]
    shares = estimates.marginals / sizes
    pool = posterior.pool[here].reshape(a, b)
    predicted = fit(pool, shares[:, x], shares[:, y]).reshape(len(sizes), -1)
    own = estimates.cells[:, here]
    deviation = own / sizes - predicted
    noise = (estimates.sigmas[:, j] ** 2)[:, None] / sizes**2 * (a - 1) * (b - 1) / (a * b)
    prior = posterior.spread[j] * posterior.spread_factor[:, None] * posterior.pool[here]
    left = np.divide(prior * noise, prior + noise, out=np.zeros_like(prior), where=prior > 0)
    weight = 1.0 / np.maximum(predicted, _LEAST)
    seen, uncertain = ((part * weight).sum(axis=1, keepdims=True) for part in (deviation**2, left))
    length = np.sqrt(1.0 + np.divide(uncertain, seen, out=np.zeros_like(seen), where=seen > 0))
    moved = np.maximum(predicted + np.minimum(length, _MOST) * deviation, FLOOR * predicted)
    moved = fit(moved.reshape(-1, a, b), shares[:, x], shares[:, y]).reshape(own.shape) * sizes
    return np.where(length > 1.0, moved, own)
