"""Scores: what to score records by, and what the answers say of the clients whose tables are mostly noise.

To first order a client pulls the loss of a federation by g·p_i: g the slope of the loss at the pool, p_i the client's
proportions over all cells. That is the mean over its records of the points g gives each. One number per record asks
for it with far less noise than tables do, which spread the same budget over all cells: the sum over records, each
between −1 and 1, has the noise of a single count. docs/theory/stages.md#scores derives what it is worth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..estimation.estimates import Estimates
from ..objective.sample import draw
from ..objective.weights import Weights, pair_weights
from ..owner.score import Points, Score
from ..pool.intake import Scores
from .client_errors import client_errors, slope_at

Floats = npt.NDArray[np.float64]

#: Points are integers: so many for one bit of the loss.
_POINTS = 10_000
#: Records of the pool by which the limits are set.
_RECORDS = 4000
#: Part of what the scores tell apart that is not the slope of the loss as it stands now, in variance: the slope was
#: estimated, and a record's points count between the limits only.
_MISFIT = 0.5
#: Part of itself that a share keeps, however far a score moves it.
_KEPT = 0.25
#: Least part of the scores' variance that is taken for clients' own.
_LEAST = 0.05


class Told(NamedTuple):
    """What the answers to a score say of each client beside its tables.

    Parameters
    ----------
    shift
        By how much its pull on the loss of the federation is larger than its tables say; 0 where it was not asked.
    left
        Part of the standard deviation of that pull which remains; 1 where it was not asked.
    """

    shift: Floats
    left: Floats


def make_score(estimates: Estimates, members: npt.NDArray[np.int64], weights: Weights, *, seed: int) -> Score:
    """Points along the slope of the loss at `members`, counted up to a standard deviation from their middle."""
    layout = estimates.layout
    points = np.rint(slope_at(estimates, members, weights) * _POINTS).astype(np.int64)
    signed = pair_weights(estimates.schema, layout, weights)
    parts = [
        Points((layout.names[x], layout.names[y]), tuple(points[layout.slice(j)].tolist()))
        for j, (x, y) in enumerate(layout.pairs)
        if signed[j]
    ]
    found = Score(low=0, high=1, points=tuple(parts))
    low, high = _limits(estimates, members, found, seed)
    return Score(low=low, high=high, points=found.points)


def told(estimates: Estimates, scores: Scores, members: npt.NDArray[np.int64], weights: Weights) -> Told:
    """What the scores say of the clients' pulls on the loss at `members`.

    The score of client i measures its pull u_i as y_i = b·u_i + noise of scale r_i = σ_i/n_i, b from the variance of
    the scores beyond their noise over that of the pulls (shown by the tables, and hidden from them). With s_i the
    standard deviation that the tables leave, the normal posterior moves u_i by K_i·(y_i − b·u_i) and leaves
    s_i²·(1 − b·K_i), K_i = b·s_i² / (b²s_i² + r_i² + misfit).
    """
    assert estimates.posterior is not None
    count, sizes = len(estimates.clients), estimates.totals
    shift, left = np.zeros(count), np.ones(count)
    asked = np.isfinite(scores.sums)
    total = float(sizes[members].sum())
    pull = (estimates.cells / sizes[:, None]) @ slope_at(estimates, members, weights)
    errors = client_errors(estimates, estimates.posterior, members, np.arange(count), weights)
    spread = (errors * total / sizes)[asked] ** 2
    # No record scores beyond 1, whatever an answer says.
    seen, noise = np.clip(scores.sums / sizes, -1.0, 1.0)[asked], (scores.sigmas / sizes)[asked] ** 2
    if asked.sum() < 2:
        return Told(shift, left)
    hidden = float(pull[asked].var() + spread.mean())
    own = max(float(seen.var() - noise.mean()), _LEAST * float(seen.var()))
    gain = np.sqrt(own / max(hidden, 1e-300))
    away = seen - seen.mean() - gain * (pull[asked] - pull[asked].mean())
    factor = gain * spread / np.maximum(gain**2 * spread + noise + _MISFIT * own, 1e-300)
    shift[asked] = factor * away * sizes[asked] / total
    left[asked] = np.sqrt(np.clip(1.0 - gain * factor, 0.0, 1.0))
    return Told(shift, left)


def informed(
    estimates: Estimates,
    scores: Scores,
    members: npt.NDArray[np.int64],
    weights: Weights,
    known: npt.NDArray[np.int64],
) -> Estimates:
    """The estimates with every client moved so that its pull on the loss is what tables and score say together.

    A client moves along v = Σ_j (u_j − ū)(p_j − p̄) / Σ_j (u_j − ū)² over the clients `known` best: as proportions go
    with the pull among those. g·v = 1, so that the pull moves by what `told` says, and all tables of a client stay
    consistent with one another.

    Parameters
    ----------
    members
        Where the slope of the loss is taken.
    known
        Clients whose tables carry least noise.
    """
    found = told(estimates, scores, members, weights)
    layout, sizes = estimates.layout, estimates.totals[:, None]
    cells, marginals = estimates.cells / sizes, estimates.marginals / sizes
    slope = slope_at(estimates, members, weights)
    pull = cells[known] @ slope
    pull = pull - pull.mean()
    along = pull / max(float(pull @ pull), 1e-300)
    by = (found.shift * float(estimates.totals[members].sum()) / estimates.totals)[:, None]
    parts = [layout.slice(j) for j in range(layout.tables)]
    levels = [layout.marginal(v) for v in range(len(layout.sizes))]
    return replace(
        estimates,
        cells=_moved(cells, by * (along @ cells[known]), parts) * sizes,
        marginals=_moved(marginals, by * (along @ marginals[known]), levels) * sizes,
    )


def _moved(shares: Floats, by: Floats, parts: Sequence[slice]) -> Floats:
    """Shares that have moved, none to less than a part of itself, each table summing to what it did."""
    found = np.maximum(shares + by, _KEPT * shares)
    for here in parts:
        sums = found[:, here].sum(axis=1, keepdims=True)
        before = shares[:, here].sum(axis=1, keepdims=True)
        found[:, here] *= np.divide(before, sums, out=np.ones_like(sums), where=sums > 0)
    return found


def _limits(estimates: Estimates, members: npt.NDArray[np.int64], score: Score, seed: int) -> tuple[int, int]:
    """A standard deviation below and above the median of the points, among records that have the members' tables."""
    layout = estimates.layout
    shares = np.maximum(estimates.cells[members].sum(axis=0), 0.0)
    for j in range(layout.tables):
        shares[layout.slice(j)] /= max(float(shares[layout.slice(j)].sum()), 1e-300)
    connected = sorted({variable for pair in layout.pairs for variable in pair})
    drawn = draw(layout, shares, connected, records=_RECORDS, seed=seed)
    points, weights = score.points_of(layout, drawn.codes), drawn.weights / drawn.weights.sum()
    order = np.argsort(points, kind="stable")
    middle = int(points[order[np.searchsorted(np.cumsum(weights[order]), 0.5)]])
    spread = max(round(math.sqrt(float(weights @ (points - weights @ points) ** 2))), 1)
    return middle - spread, middle + spread
