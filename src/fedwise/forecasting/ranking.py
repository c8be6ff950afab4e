"""Ranking: AUC, log loss, Brier score and rate-matched rates of many federations, from histograms of scores.

Sorting the target's records for each federation would cost more than all else. The scores are counted in
`COUNT` bins of equal width instead, by group and class: what lies in one bin counts as tied. Bins are 1/64 of a
unit of log-odds wide: AUC and losses differ from those of sorted records by less than 1e-4, gaps by about one
record.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..machine_code import compiled
from .kernels import BLOCK, Scorer, Solver, fill_table, level_scores, score, solve

Floats = npt.NDArray[np.float64]

#: Bins of scores.
COUNT = 1024
#: Least and largest score told apart, for log-odds and for the probabilities of a linear model.
RANGE = {"logistic": (-8.0, 8.0), "linear": (-1.0, 2.0)}
#: Largest log loss there is: scores are kept within this distance of 0.
MOST_LOSS = RANGE["logistic"][1] + 0.1
#: Probabilities of a linear model are kept this far from 0 and 1 for the log loss.
EDGE = 1e-3


class Bins(NamedTuple):
    """Bins of equal width, and what a record in the middle of each costs.

    Attributes
    ----------
    low, width
        The first bin starts at `low`; scores outside all bins count in the nearest.
    costs
        Shape (2, 2, bins): log loss and squared error, by class.
    """

    low: float
    width: float
    costs: Floats


def make_bins(*, logistic: bool) -> Bins:
    """The bins of a link."""
    low, high = RANGE["logistic" if logistic else "linear"]
    width = (high - low) / COUNT
    middle: Floats = low + (np.arange(COUNT, dtype=np.float64) + 0.5) * width
    return Bins(low, width, np.stack(costs(middle, logistic=logistic)))


def costs(scores: Floats, *, logistic: bool) -> tuple[Floats, Floats]:
    """Log loss and squared error of scores for the class 0 and the class 1: shape (2, scores) each."""
    if logistic:
        loss = np.stack([np.logaddexp(0.0, scores), np.logaddexp(0.0, -scores)])
        chance = 1.0 / (1.0 + np.exp(-scores))
    else:
        kept = np.clip(scores, EDGE, 1.0 - EDGE)
        loss = np.stack([-np.log1p(-kept), -np.log(kept)])
        chance = scores
    return loss, np.stack([chance**2, (1.0 - chance) ** 2])


@compiled(fastmath={"reassoc", "contract", "nsz"})
def count_scores(
    spec: Scorer, bins: Bins, levels: Floats, table: npt.NDArray[np.float32], out: Floats
) -> None:
    """Records by group, class and bin of score, into `out` of shape (groups, 2, bins)."""
    fill_table(spec, levels, table)
    out[:] = 0.0
    last = out.shape[2] - 1
    scale = np.float32(1.0 / bins.width)
    shift = np.float32((levels[0] - bins.low) / bins.width)
    value = np.empty(BLOCK, np.float32)
    for group in range(out.shape[0]):
        no, yes = out[group, 0], out[group, 1]
        for start in range(spec.groups[group], spec.groups[group + 1], BLOCK):
            size = min(BLOCK, spec.groups[group + 1] - start)
            value[:size] = np.float32(0.0)
            for g in range(spec.lookup.shape[0]):
                lookup = spec.lookup[g, start : start + size]
                for r in range(size):
                    value[r] += table[lookup[r]]
            chance = spec.chance[start : start + size]
            for r in range(size):
                at = min(max(int(shift + scale * value[r]), 0), last)
                no[at] += np.float32(1.0) - chance[r]
                yes[at] += chance[r]


@compiled()
def rank(counts: Floats, shares: Floats, bins: Bins, rates: Floats, scores: Floats) -> None:
    """Rates at the rate-matched threshold and metrics of scores, from counts by group, class and bin.

    `rates`, shape (groups, 2): share of yes by group and class. `scores`: AUC, log loss, squared error.
    `counts` is scaled in place so that each group and class has its share of the population.
    """
    groups, count = counts.shape[0], counts.shape[2]
    total = np.zeros((2, count))
    for g in range(groups):
        for c in range(2):
            mass = counts[g, c].sum()
            weight = shares[g, c] / mass if mass > 0.0 else 0.0
            for b in range(count):
                counts[g, c, b] *= weight
                total[c, b] += counts[g, c, b]
    below, area, loss, square = 0.0, 0.0, 0.0, 0.0
    for b in range(count):
        no, yes = total[0, b], total[1, b]
        area += yes * (below + no / 2)
        below += no
        loss += no * bins.costs[0, 0, b] + yes * bins.costs[0, 1, b]
        square += no * bins.costs[1, 0, b] + yes * bins.costs[1, 1, b]
    positive = total[1].sum()
    scores[0] = area / (below * positive) if below > 0.0 and positive > 0.0 else 0.5
    scores[1], scores[2] = loss, square
    rates[:] = 0.0
    left = positive
    for b in range(count - 1, -1, -1):
        mass = total[0, b] + total[1, b]
        if mass > 0.0:
            part = min(left / mass, 1.0)
            left -= part * mass
            for g in range(groups):
                for c in range(2):
                    rates[g, c] += part * counts[g, c, b]
            if part < 1.0:
                break
    for g in range(groups):
        for c in range(2):
            if shares[g, c] > 0.0:
                rates[g, c] /= shares[g, c]


@compiled()
def batch_ranks(
    solver: Solver, spec: Scorer, bins: Bins, shares: Floats, sums: Floats, half: bool
) -> tuple[Floats, Floats, Floats]:
    """Of each summed row: rates at ½ (zeros unless `half`), rates at the rate-matched threshold, and scores.

    Shapes (batch, groups, 2), (batch, groups, 2) and (batch, 3); the last holds AUC, log loss and squared error.
    """
    p = solver.beta.size
    work, beta = np.empty((p, p)), np.empty(p)
    levels = np.empty(solver.projection.shape[0])
    table = np.empty(spec.parts.shape[0], np.float32)
    groups = spec.groups.size - 1
    counts = np.empty((groups, 2, bins.costs.shape[2]))
    rates, matched = np.zeros((sums.shape[0], groups, 2)), np.empty((sums.shape[0], groups, 2))
    scores = np.empty((sums.shape[0], 3))
    for b in range(sums.shape[0]):
        solve(solver, sums[b], work, beta)
        level_scores(solver.projection, beta, levels)
        if half:
            score(spec, levels, table, rates[b])
        count_scores(spec, bins, levels, table, counts)
        rank(counts, shares, bins, matched[b], scores[b])
    return rates, matched, scores
