"""Mutual information of tables of counts: value, pointwise value and gradient, in bits.

With f(c) = c·log2 c, marginals c_x and c_y and n records in all,

    I(X;Y) = log2 n + (Σ f(c_xy) − Σ f(c_x) − Σ f(c_y)) / n,
    ∂I/∂c_xy = (PMI(x,y) − I) / n,    PMI = log2 (c_xy · n / (c_x · c_y)),

(the paper prints −(PMI + I)/n; differentiate H(X) + H(Y) − H(X,Y) to see the sign). Every function takes one
table or a stack of them: the last two axes are rows and columns. Counts of nothing, and negative estimates,
are empty cells. The compiled kernels of the search are the only other place where this is written.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

#: Bits in a nat.
LOG2E = math.log2(math.e)
#: Slopes of the loss see at least this many records in a cell: the logarithm of an empty cell has no slope.
ONE_RECORD = 1.0
#: Below this a cell is empty.
_TINY = 1e-300


def xlogx(counts: npt.ArrayLike) -> Floats:
    """f(c) = c·log2 c of each count, and 0 for empty or negative ones."""
    found: Floats = np.maximum(counts, 0.0) * np.log2(np.maximum(counts, _TINY))
    return found


def xlogx_slope(counts: npt.ArrayLike, *, floor: float) -> Floats:
    """f'(c) = log2 c + log2 e of each count, counts below `floor` taken as `floor`."""
    found: Floats = np.log2(np.maximum(counts, floor)) + LOG2E
    return found


def entropy(counts: npt.ArrayLike) -> Floats:
    """Entropy over the last axis: log2 n − Σ f(c) / n, and 0 where there is nothing."""
    positive = np.maximum(np.asarray(counts, dtype=np.float64), 0.0)
    n = positive.sum(axis=-1)
    return _per_record(n, -xlogx(positive).sum(axis=-1))


def from_sums(joint: Floats | float, sides: Floats | float, n: Floats | float) -> Floats:
    """Information from Σ f(c_xy), Σ f(c_x) + Σ f(c_y) and n; 0 where n is not positive."""
    return _per_record(n, joint - sides)


def informations(tables: Floats) -> Floats:
    """Mutual information of tables (…, a, b): each clipped at zero, with marginals of its own. Shape (…)."""
    counts = np.maximum(tables, 0.0)
    down, across = counts.sum(axis=-1), counts.sum(axis=-2)
    sides = xlogx(down).sum(axis=-1) + xlogx(across).sum(axis=-1)
    # Cells in one axis: the sum of a table is then the same to the last bit, alone or in a stack.
    joint = xlogx(counts.reshape(*counts.shape[:-2], -1)).sum(axis=-1)
    return from_sums(joint, sides, down.sum(axis=-1))


def information(
    table: Floats, x: Floats | None = None, y: Floats | None = None, n: float | None = None
) -> float:
    """Mutual information of one table, of its own marginals or of those given with their total."""
    if x is None or y is None or n is None:
        return float(informations(table))
    return float(from_sums(xlogx(table).sum(), xlogx(x).sum() + xlogx(y).sum(), n))


def ratio(tables: Floats, *, floor: float = 0.0) -> Floats:
    """c_xy · n / (c_x · c_y) of each cell: 1 means independence. 1 for empty cells, unless a floor fills them.

    Parameters
    ----------
    floor
        Cells, marginals and total count at least this much.
    """
    counts = np.maximum(tables, 0.0)
    down, across = counts.sum(axis=-1, keepdims=True), counts.sum(axis=-2, keepdims=True)
    n = down.sum(axis=-2, keepdims=True)
    if floor > 0:
        counts, down, across, n = (np.maximum(part, floor) for part in (counts, down, across, n))
    expected = np.asarray(down * across)
    found: Floats = np.divide(
        counts * n, expected, out=np.ones_like(counts), where=(counts > 0) & (expected > 0)
    )
    return found


def pointwise(tables: Floats, *, floor: float = 0.0) -> Floats:
    """PMI of each cell; `floor` as in `ratio`."""
    found: Floats = np.log2(ratio(tables, floor=floor))
    return found


def gradient(tables: Floats, *, floor: float = 0.0) -> Floats:
    """∂I/∂c of each cell: (PMI − I) / n.

    Without a floor it is 0 on empty cells, as for tables clipped at zero; with one, an empty cell has the
    slope of a cell of `floor` records, so that a search knows what filling it would do.
    """
    counts = np.maximum(tables, 0.0)
    n = np.asarray(counts.sum(axis=(-1, -2), keepdims=True))
    records = np.where(n > 0, np.maximum(n, floor), 1.0)
    pmi = pointwise(counts, floor=floor)
    slope = (pmi - np.sum(counts * pmi, axis=(-1, -2), keepdims=True) / records) / records
    present = (n > 0) & ((counts > 0) | (floor > 0))
    return np.where(present, slope, 0.0)


def _per_record(n: Floats | float, sums: Floats | float) -> Floats:
    """log2 n + sums / n, and 0 where n is not positive."""
    records = np.asarray(n, dtype=np.float64)
    if records.ndim == 0:  # one table: many are asked for one by one
        return np.asarray(np.log2(records) + sums / records if records > 0 else 0.0)
    safe = np.where(records > 0, records, 1.0)
    return np.where(records > 0, np.log2(safe) + sums / safe, 0.0)
