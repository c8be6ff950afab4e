"""Revolving-door order: all k-subsets of n, each one swap away from the one before.

Positions are 1-based and increasing, as in Kreher & Stinson, *Combinatorial Algorithms* (1999), §2.3.3,
whose ranking, unranking and successor these are. Ranks let the enumeration be cut into independent blocks.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from .compiled import strict
from .constraints import Limits, exchange
from .kernels import move, resum, shift
from .scoring import Scorer, sum_losses

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def unrank(position: int, k: int, n: int) -> Ints:
    """The subset at `position` (from 0) of the revolving-door order, increasing, 1-based."""
    subset = np.zeros(k, dtype=np.int64)
    x = n
    for i in range(k, 0, -1):
        while math.comb(x, i) > position:
            x -= 1
        subset[i - 1] = x + 1
        position = math.comb(x + 1, i) - position - 1
    return subset


def rank_of(subset: Ints) -> int:
    """Inverse of `unrank`."""
    k = len(subset)
    position, sign = -(k % 2), 1
    for i in range(k, 0, -1):
        position += sign * math.comb(int(subset[i - 1]), i)
        sign = -sign
    return position


@strict
def advance(subset: Ints, n: int) -> tuple[int, int]:
    """Step to the next subset in place; returns who left and who joined (1-based)."""
    k = subset.size
    j = 1
    while j <= k and subset[j - 1] == j:
        j += 1
    if (k - j) % 2 != 0:
        if j == 1:
            out = subset[0]
            subset[0] -= 1
            return out, subset[0]
        # Positions j-1 and j-2 take the values j and j-1: the value that disappears leaves.
        out = subset[j - 2]
        if j >= 3:
            out = subset[j - 3]
            subset[j - 3] = j - 1
        subset[j - 2] = j
        return out, j
    following = subset[j] if j < k else n + 1
    if following != subset[j - 1] + 1:
        if j >= 2:
            out = subset[j - 2]
            subset[j - 2] = subset[j - 1]
            subset[j - 1] += 1
            return out, subset[j - 1]
        out = subset[0]
        subset[0] += 1
        return out, subset[0]
    out = subset[j]
    subset[j] = subset[j - 1]
    subset[j - 1] = j
    return out, j


@strict
def feasible_now(limits: Limits, used: Floats, counts: Ints) -> bool:
    """Whether this usage keeps every limit."""
    for i in range(limits.bounds.size):
        if used[i] > limits.bounds[i] + 1e-9 * max(1.0, abs(limits.bounds[i])):
            return False
    kept = True
    for i in range(limits.caps.size):  # a comparison of arrays would make one at every federation
        kept = kept and counts[i] <= limits.caps[i]
    return kept


@strict
def keep_best(values: Floats, items: Ints, count: int, losses: Floats, found: Ints) -> None:
    """Insert items among the best so far, ascending; of equal losses the first stays ahead.

    Parameters
    ----------
    values, items, count
        Shapes (n,) and (n, m): what was evaluated, in order; the first `count` of them.
    losses, found
        Shapes (keep,) and (keep, m): the best so far, updated in place.
    """
    for i in range(count):
        loss = values[i]
        at = losses.size - 1
        if loss >= losses[at]:
            continue
        while at > 0 and losses[at - 1] > loss:
            losses[at] = losses[at - 1]
            for j in range(found.shape[1]):
                found[at, j] = found[at - 1, j]
            at -= 1
        losses[at] = loss
        for j in range(found.shape[1]):
            found[at, j] = items[i, j]


@strict
def enumerate_block(
    scorer: Scorer,
    scratch: Floats,
    rows: Floats,
    limits: Limits,
    base: Floats,
    used: Floats,
    counts: Ints,
    subset: Ints,
    steps: int,
    batch: int,
    losses: Floats,
    found: Ints,
) -> int:
    """Visit `steps` subsets of the free clients from `subset` on; keep the best. Returns evaluations.

    Parameters
    ----------
    base
        Summed row of the fixed clients.
    used, counts
        Usage of the first subset together with the fixed clients; updated in place.
    batch
        Subsets evaluated together.
    losses, found
        Shapes (keep,) and (keep, k): the best so far, ascending, updated in place. Rows of `found` are
        subsets of the free part, as positions from 1.
    """
    sums = np.empty((batch, base.size))
    subsets = np.empty((batch, subset.size), dtype=np.int64)
    values = np.empty(batch)
    evaluations, at, filled = 0, 0, 0
    resum(rows, base, limits.free[subset - 1], sums[0])
    for step in range(steps):
        if step > 0:
            left, joined = advance(subset, limits.free.size)
            out, into = limits.free[left - 1], limits.free[joined - 1]
            exchange(limits, used, counts, out, into)
            # Each feasible sum stays in its row until the batch is evaluated; the next one follows from it.
            if at == filled:
                move(sums[at], rows[out], rows[into])
            else:
                shift(sums[at], rows[out], rows[into], sums[filled])
                at = filled
        if feasible_now(limits, used, counts):
            for i in range(subset.size):
                subsets[filled, i] = subset[i]
            filled += 1
        if filled == batch or (step == steps - 1 and filled > 0):
            sum_losses(scorer, scratch, sums, filled, values)
            keep_best(values, subsets, filled, losses, found)
            evaluations += filled
            filled = 0
    return evaluations
