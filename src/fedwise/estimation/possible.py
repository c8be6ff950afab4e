"""Possible: the pool as the truth may be, given its releases.

A draw from what the estimates leave uncertain (`Posterior`), part by part: number of records, marginals, the strength
of each table along the pool's association, and the cells off it. Unlike a redraw of the noise, it moves what shrinkage
has taken from the pool as well, and it needs no second estimation.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from .estimates import Estimates, Posterior
from .fitting import centre, fit
from .redraw import redraw
from .shrinkage import FLOOR

Floats = npt.NDArray[np.float64]

#: Degrees of freedom of a client's errors: their scale is estimated too (as in `search.doubt`).
DEGREES = 10
#: Rounds of proportional fitting that give a moved table its moved marginals.
_ROUNDS = 6


def possible(estimates: Estimates, rng: np.random.Generator) -> Estimates:
    """Tables that the clients may truly have; their sum over a federation is a draw of its true tables.

    Errors of different clients are independent; what all clients share with the pool is left out, since it does not
    change who is better than whom. Plain estimates have no posterior: there the noise is drawn again.
    """
    posterior = estimates.posterior
    if not np.any(estimates.sigmas):
        return estimates
    if posterior is None:
        return redraw(estimates, rng)
    layout, sizes = estimates.layout, estimates.totals
    clients = len(sizes)
    wide = np.sqrt(DEGREES / rng.chisquare(DEGREES, clients))
    totals = sizes + wide * np.sqrt(posterior.totals) * rng.standard_normal(clients)
    totals = np.maximum(totals, 0.1 * sizes)
    marginals = _marginals(estimates, posterior, wide, rng)
    cells = np.empty_like(estimates.cells)
    for j in range(layout.tables):
        here, (x, y) = layout.slice(j), layout.sides(j)
        moved = _moved(estimates, posterior, j, wide, rng)
        fitted = fit(moved, marginals[:, x], marginals[:, y], rounds=_ROUNDS)
        cells[:, here] = (fitted * totals[:, None, None]).reshape(clients, -1)
    return replace(estimates, cells=cells, totals=totals, marginals=marginals * totals[:, None])


def learned(estimates: Estimates, truth: Estimates, sigmas: Floats, rng: np.random.Generator) -> Estimates:
    """Estimates after further releases that bring the noise down to `sigmas`, if `truth` is the truth.

    With posterior variance V now and V′ then, the mean moves toward the truth by r = 1 − V′/V and keeps an error of
    variance V′·r around that. V′ follows from V and the two noises as in a normal law, on average over tables.

    Parameters
    ----------
    truth
        A draw of `possible`.
    sigmas
        Shape (clients, tables): noise after the further releases.
    """
    posterior = estimates.posterior
    if posterior is None:
        return redraw(replace(truth, sigmas=sigmas), rng)
    now, then = estimates.sigmas**2, sigmas**2
    keep = np.clip(posterior.strength * estimates.totals[:, None] ** 2 / now, 1e-6, 1.0 - 1e-9)
    spread = keep / (1.0 - keep) * now  # τ² in counts²
    part = 1.0 - (spread * then / (spread + then)) / (keep * now)
    part = np.clip(
        part.mean(axis=1, keepdims=True), 0.0, 1.0
    )  # one for all tables, so that they stay consistent
    other = possible(estimates, rng)

    def moved(here: Floats, true: Floats, drawn: Floats) -> Floats:
        return np.asarray(here + part * (true - here) + np.sqrt(part * (1.0 - part)) * (drawn - here))

    return replace(
        estimates,
        cells=np.maximum(moved(estimates.cells, truth.cells, other.cells), 0.0),
        marginals=np.maximum(moved(estimates.marginals, truth.marginals, other.marginals), 0.0),
        totals=moved(estimates.totals[:, None], truth.totals[:, None], other.totals[:, None])[:, 0],
    )


def _marginals(estimates: Estimates, posterior: Posterior, wide: Floats, rng: np.random.Generator) -> Floats:
    """Moved proportions of every variable's levels, summing to one."""
    layout = estimates.layout
    own = estimates.marginals / estimates.totals[:, None]
    moved = np.empty_like(own)
    for variable, levels in enumerate(layout.sizes):
        here = layout.marginal(variable)
        variance = posterior.marginals[:, here] * (levels / max(levels - 1, 1))
        error = np.sqrt(variance) * rng.standard_normal(variance.shape)
        whole = variance.sum(axis=1, keepdims=True)
        part = np.divide(variance, whole, out=np.zeros_like(variance), where=whole > 0)
        error -= part * error.sum(axis=1, keepdims=True)  # given that levels sum to one
        found = np.maximum(own[:, here] + wide[:, None] * error, FLOOR * own[:, here])
        moved[:, here] = found / found.sum(axis=1, keepdims=True)
    return moved


def _moved(
    estimates: Estimates, posterior: Posterior, j: int, wide: Floats, rng: np.random.Generator
) -> Floats:
    """Proportions of one table with other interactions, not yet with other marginals."""
    layout = estimates.layout
    here, (a, b) = layout.slice(j), layout.shapes[j]
    own = estimates.cells[:, here] / estimates.totals[:, None]
    direction = posterior.direction[here]
    along = np.sqrt(posterior.strength[:, j]) * rng.standard_normal(len(own))
    noise = (estimates.sigmas[:, j] ** 2 / estimates.totals**2)[:, None]
    prior = posterior.spread[j] * posterior.spread_factor[:, None] * posterior.pool[here]
    left = np.divide(prior * noise, prior + noise, out=np.zeros_like(prior), where=prior > 0)
    rest = np.sqrt(left) * rng.standard_normal(own.shape)
    rest = centre(rest.reshape(-1, a, b)).reshape(len(own), -1)
    rest -= (rest @ direction)[:, None] * direction
    found = own + wide[:, None] * (along[:, None] * direction + rest)
    return np.asarray(np.maximum(found, FLOOR * np.maximum(own, 0.0)).reshape(-1, a, b))
