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
from .kernels import Spec, move, resum, sum_loss

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
    return not np.any(counts > limits.caps)


@strict
def enumerate_block(
    spec: Spec,
    rows: Floats,
    limits: Limits,
    base: Floats,
    used: Floats,
    counts: Ints,
    subset: Ints,
    steps: int,
    losses: Floats,
    found: Ints,
) -> int:
    """Visit `steps` subsets of the free clients from `subset` on; keep the best. Returns evaluations.

    Parameters
    ----------
    used, counts
        Usage of the first subset together with the fixed clients; updated in place.
    losses, found
        Shapes (keep,) and (keep, k): the best so far, ascending, updated in place. Members of `found`
        are client positions of the free part.
    """
    scratch = np.zeros((2, spec.scratch))
    n = limits.free.size
    keep = losses.size
    evaluations = 0
    sums = np.empty_like(base)
    resum(rows, base, limits.free[subset - 1], sums)
    for step in range(steps):
        if step > 0:
            left, joined = advance(subset, n)
            out, into = limits.free[left - 1], limits.free[joined - 1]
            exchange(limits, used, counts, out, into)
            move(sums, rows[out], rows[into])
        if not feasible_now(limits, used, counts):
            continue
        loss = sum_loss(spec, scratch, sums)
        evaluations += 1
        if loss < losses[keep - 1]:
            at = keep - 1
            while at > 0 and losses[at - 1] > loss:
                losses[at] = losses[at - 1]
                found[at] = found[at - 1]
                at -= 1
            losses[at] = loss
            found[at] = limits.free[subset - 1]
    return evaluations
