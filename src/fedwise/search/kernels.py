"""The loss of a federation from its summed row, at the speed of the machine.

A client is one contiguous row. For consistent estimates (one marginal per variable) the row holds the
pair cells, the marginals and the total, and with f(c) = c·log2 c the loss is one weighted sum,

    PFL = (Σ_i u_i f(z_i)) / n + (Σ_j w_j) · log2 n,

where u is w_j on the cells of table j and −Σ w_j over the tables of a variable on its marginal. For the
paper's plain estimates each summed table is clipped at zero and brings marginals and a total of its own.

The kernels are pure: arrays in, numbers out, no allocation. `swap_loss` reads three rows and writes
nothing; `move` stores a swap. A fused store-and-evaluate is slower: the store blocks the vectoriser. Arrays are filled
by loops: an assignment of slices compiles to the same code, but takes seconds to compile.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .compiled import fast
from .logarithm import xlog2x

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: A table with fewer records than this is empty.
_EMPTY = 1e-6


class Spec(NamedTuple):
    """How a summed row becomes a loss. One type for both kernels, so the searches compile once.

    Parameters
    ----------
    plain
        0: consistent row ``[cells | marginals | padding | total]``. 1: plain row ``[cells | marginals of
        each table | total of each table | padding]``, unclipped: the kernel corrects for the clipping.
    weights
        Shape (width,): u of each entry (consistent), unused otherwise.
    shift
        Σ_j w_j (consistent).
    tables
        Shape (tables, 4), plain: first cell, cells, first marginal, marginals.
    places
        Shape (cells, 3), plain: where the row marginal, column marginal and total of a cell live.
    table_weights
        Shape (tables,), plain: w_j.
    scratch
        Floats a caller must provide as work space: shape (2, scratch).
    """

    plain: int
    weights: Floats
    shift: float
    tables: Ints
    places: Ints
    table_weights: Floats
    scratch: int


@fast
def _consistent_swap(weights: Floats, sums: Floats, out: Floats, into: Floats) -> float:
    total = 0.0
    for i in range(sums.size):
        total += weights[i] * xlog2x(sums[i] - out[i] + into[i])
    return total


@fast
def _consistent_add(weights: Floats, sums: Floats, into: Floats) -> float:
    total = 0.0
    for i in range(sums.size):
        total += weights[i] * xlog2x(sums[i] + into[i])
    return total


@fast
def _consistent_sum(weights: Floats, sums: Floats) -> float:
    total = 0.0
    for i in range(sums.size):
        total += weights[i] * xlog2x(sums[i])
    return total


@fast
def _close(weighted: float, n: float, shift: float) -> float:
    """The loss from Σ u·f and the total; an empty federation informs about nothing."""
    return weighted / n + shift * math.log2(n) if n > 0.0 else 0.0


@fast
def _weighted(coefficients: Floats, values: Floats) -> float:
    total = 0.0
    for i in range(values.size):
        total += coefficients[i] * xlog2x(values[i])
    return total


@fast
def _plain_loss(spec: Spec, scratch: Floats) -> float:
    """The loss of the unclipped row already in ``scratch[0]``.

    Clipping a negative cell at zero raises its two marginals and its table's total by as much; only the
    negative cells cost anything. Then one flat weighted sum, as in the consistent case.
    """
    values, coefficients = scratch[0], scratch[1]
    for i in range(spec.places.shape[0]):
        value = values[i]
        if value < 0.0:
            values[spec.places[i, 0]] -= value
            values[spec.places[i, 1]] -= value
            values[spec.places[i, 2]] -= value
    loss = 0.0
    first_total = values.size - spec.tables.shape[0]
    for j in range(spec.tables.shape[0]):
        n = values[first_total + j]
        scale = 0.0
        # A table whose cells are all clipped has a total of zero up to rounding.
        if n > _EMPTY:
            scale = spec.table_weights[j] / n
            loss += spec.table_weights[j] * math.log2(n)
        cell, margin = spec.tables[j, 0], spec.tables[j, 2]
        for i in range(cell, cell + spec.tables[j, 1]):
            coefficients[i] = scale
        for i in range(margin, margin + spec.tables[j, 3]):
            coefficients[i] = -scale
    return loss + _weighted(coefficients[:first_total], values[:first_total])


@fast
def swap_loss(spec: Spec, scratch: Floats, sums: Floats, out: Floats, into: Floats) -> float:
    """Loss after the client with row `out` leaves and the one with row `into` joins. Writes nothing."""
    last = sums.size - 1
    if spec.plain == 0:
        n = sums[last] - out[last] + into[last]
        return _close(_consistent_swap(spec.weights, sums, out, into), n, spec.shift)
    values = scratch[0]
    for i in range(sums.size):
        values[i] = sums[i] - out[i] + into[i]
    return _plain_loss(spec, scratch)


@fast
def add_loss(spec: Spec, scratch: Floats, sums: Floats, into: Floats) -> float:
    """Loss after the client with row `into` joins. Writes nothing."""
    last = sums.size - 1
    if spec.plain == 0:
        return _close(_consistent_add(spec.weights, sums, into), sums[last] + into[last], spec.shift)
    values = scratch[0]
    for i in range(sums.size):
        values[i] = sums[i] + into[i]
    return _plain_loss(spec, scratch)


@fast
def sum_loss(spec: Spec, scratch: Floats, sums: Floats) -> float:
    """Loss of a summed row."""
    if spec.plain == 0:
        return _close(_consistent_sum(spec.weights, sums), sums[sums.size - 1], spec.shift)
    values = scratch[0]
    for i in range(sums.size):
        values[i] = sums[i]
    return _plain_loss(spec, scratch)


@fast
def move(sums: Floats, out: Floats, into: Floats) -> None:
    """Swap for good: store the new sum."""
    for i in range(sums.size):
        sums[i] += into[i] - out[i]


@fast
def shift(sums: Floats, out: Floats, into: Floats, moved: Floats) -> None:
    """Store the sum after a swap in `moved`, another row than `sums`: in place, `move` is several times faster."""
    for i in range(sums.size):
        moved[i] = sums[i] + (into[i] - out[i])


@fast
def resum(rows: Floats, base: Floats, members: Ints, sums: Floats) -> None:
    """Sum afresh: `base` plus the rows of `members`. Stops rounding from piling up over many swaps."""
    for j in range(sums.size):
        sums[j] = base[j]
    for i in range(members.size):
        row = rows[members[i]]
        for j in range(sums.size):
            sums[j] += row[j]


@fast
def batch_losses(spec: Spec, sums: Floats) -> Floats:
    """Loss of each summed row. Shape (batch, width) to (batch,)."""
    scratch = np.zeros((2, spec.scratch))
    losses = np.empty(sums.shape[0])
    for b in range(sums.shape[0]):
        losses[b] = sum_loss(spec, scratch, sums[b])
    return losses


@fast
def path_losses(spec: Spec, rows: Floats, base: Floats, paths: Ints) -> Floats:
    """Losses while the clients of each path join `base` one by one. Shape (paths, k) to (paths, k)."""
    scratch = np.zeros((2, spec.scratch))
    losses = np.empty(paths.shape)
    sums = np.empty_like(base)
    for p in range(paths.shape[0]):
        for j in range(sums.size):
            sums[j] = base[j]
        for i in range(paths.shape[1]):
            row = rows[paths[p, i]]
            for j in range(sums.size):
                sums[j] += row[j]
            losses[p, i] = sum_loss(spec, scratch, sums)
    return losses


@fast
def add_losses(spec: Spec, rows: Floats, base: Floats, candidates: Ints) -> Floats:
    """Loss of `base` plus each candidate in turn. Shape (candidates,)."""
    scratch = np.zeros((2, spec.scratch))
    losses = np.empty(candidates.size)
    for c in range(candidates.size):
        losses[c] = add_loss(spec, scratch, base, rows[candidates[c]])
    return losses


@fast
def drop_losses(spec: Spec, rows: Floats, sums: Floats, members: Ints) -> Floats:
    """Loss of `sums` without each member in turn. Shape (members,)."""
    scratch = np.zeros((2, spec.scratch))
    nothing = np.zeros_like(sums)
    losses = np.empty(members.size)
    for m in range(members.size):
        losses[m] = swap_loss(spec, scratch, sums, rows[members[m]], nothing)
    return losses
