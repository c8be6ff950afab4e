"""The loss of a federation from its summed row, at the speed of the machine.

A client is one contiguous row. For consistent estimates (one marginal per variable) the row holds the
pair cells, the marginals and the total, and with f(c) = c·log2 c the loss is one weighted sum,

    PFL = (Σ_i u_i f(z_i)) / n + (Σ_j w_j) · log2 n,

where u is w_j on the cells of table j and −Σ w_j over the tables of a variable on its marginal. For the
paper's plain estimates each summed table is clipped at zero and brings marginals and a total of its own.

The kernels are pure: arrays in, numbers out, no allocation. `swap_loss` reads three rows and writes
nothing; `move` stores a swap. A fused store-and-evaluate is slower: the store blocks the vectoriser.

The first search after an installation waits for the compiler, so little is compiled: consistent and plain rows have
specifications of their own type, and a search compiles the kernels of one; a summed row, a client who joins and one
who leaves are swaps with nobody, so that `swap_losses` evaluates all of them; work space comes from the caller, and
arrays are filled by loops (an assignment of slices compiles to the same code, but takes seconds to compile).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba.extending import overload

from .compiled import fast, part
from .logarithm import xlog2x

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: A table with fewer records than this is empty.
_EMPTY = 1e-6


class Spec(NamedTuple):
    """How a consistent summed row ``[cells | marginals | padding | total]`` becomes a loss.

    Parameters
    ----------
    weights
        Shape (width,): u of each entry.
    shift
        Σ_j w_j.
    scratch
        Floats a caller must provide as work space: shape (2, scratch).
    """

    weights: Floats
    shift: float
    scratch: int = 0


class ClippedSpec(NamedTuple):
    """How a plain summed row ``[cells | marginals of each table | total of each table]`` becomes a loss.

    The row is not clipped: the kernel corrects for the clipping.

    Parameters
    ----------
    tables
        Shape (tables, 4): first cell, cells, first marginal, marginals.
    places
        Shape (cells, 3): where the row marginal, column marginal and total of a cell live.
    table_weights
        Shape (tables,): w_j.
    scratch
        As in `Spec`: the width of a row.
    """

    tables: Ints
    places: Ints
    table_weights: Floats
    scratch: int


@part
def _consistent_swap(weights: Floats, sums: Floats, out: Floats, into: Floats) -> float:
    total = 0.0
    for i in range(sums.size):
        total += weights[i] * xlog2x(sums[i] - out[i] + into[i])
    return total


@part
def _consistent_sum(weights: Floats, sums: Floats) -> float:
    total = 0.0
    for i in range(sums.size):
        total += weights[i] * xlog2x(sums[i])
    return total


@part
def _close(weighted: float, n: float, shift: float) -> float:
    """The loss from Σ u·f and the total; an empty federation informs about nothing."""
    return weighted / n + shift * math.log2(n) if n > 0.0 else 0.0


@part
def _clipped_loss(spec: ClippedSpec, scratch: Floats) -> float:
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
        # Positions that count from 0 are known to be no negative ones, so that these loops vectorise.
        cells, margins = coefficients[cell:], coefficients[margin:]
        for i in range(spec.tables[j, 1]):
            cells[i] = scale
        for i in range(spec.tables[j, 3]):
            margins[i] = -scale
    return loss + _consistent_sum(coefficients[:first_total], values[:first_total])


@part
def consistent_swap(spec: Spec, scratch: Floats, sums: Floats, out: Floats, into: Floats) -> float:
    """`swap_loss` of consistent rows."""
    last = sums.size - 1
    n = sums[last] - out[last] + into[last]
    return _close(_consistent_swap(spec.weights, sums, out, into), n, spec.shift)


@part
def clipped_swap(spec: ClippedSpec, scratch: Floats, sums: Floats, out: Floats, into: Floats) -> float:
    """`swap_loss` of plain rows."""
    values = scratch[0]
    for i in range(sums.size):
        values[i] = sums[i] - out[i] + into[i]
    return _clipped_loss(spec, scratch)


@part
def consistent_loss(spec: Spec, scratch: Floats, sums: Floats) -> float:
    """Loss of a consistent summed row."""
    return _close(_consistent_sum(spec.weights, sums), sums[sums.size - 1], spec.shift)


@part
def clipped_loss(spec: ClippedSpec, scratch: Floats, sums: Floats) -> float:
    """Loss of a plain summed row."""
    values = scratch[0]
    for i in range(sums.size):
        values[i] = sums[i]
    return _clipped_loss(spec, scratch)


def swap_loss(scorer: Any, scratch: Floats, sums: Floats, out: Floats, into: Floats) -> float:
    """Loss after the client with row `out` leaves and the one with row `into` joins. Writes nothing.

    Compiled, the kernel of the specification's type; in Python the objective's own `evaluate` (`scoring.PythonScorer`).
    """
    return float(scorer.evaluate((sums - out + into)[None, :])[0])


@overload(swap_loss, jit_options={"forceinline": True})
def _swap_loss(scorer: Any, scratch: Any, sums: Any, out: Any, into: Any) -> Any:
    kernel = clipped_swap if scorer.instance_class is ClippedSpec else consistent_swap

    def compiled(scorer: Any, scratch: Any, sums: Any, out: Any, into: Any) -> Any:
        return kernel(scorer, scratch, sums, out, into)

    return compiled


@fast
def swap_losses(
    spec: Spec | ClippedSpec,
    scratch: Floats,
    sums: Floats,
    rows: Floats,
    swaps: Ints,
    nobody: Floats,
    losses: Floats,
) -> None:
    """Fill `losses` with the loss after each swap of `sums`: row ``swaps[i, 0]`` leaves, ``swaps[i, 1]`` joins.

    A negative position stands for `nobody`, a row of zeros.
    """
    for i in range(losses.size):
        out, into = swaps[i, 0], swaps[i, 1]
        leaves = rows[out] if out >= 0 else nobody
        joins = rows[into] if into >= 0 else nobody
        losses[i] = swap_loss(spec, scratch, sums, leaves, joins)


@fast
def path_losses(
    spec: Spec | ClippedSpec,
    scratch: Floats,
    rows: Floats,
    paths: Ints,
    sums: Floats,
    nobody: Floats,
    losses: Floats,
) -> None:
    """Fill `losses` with the losses while the clients of each path join one by one; `sums` is work space."""
    for p in range(paths.shape[0]):
        for j in range(sums.size):
            sums[j] = 0.0
        for i in range(paths.shape[1]):
            row = rows[paths[p, i]]
            losses[p, i] = swap_loss(spec, scratch, sums, nobody, row)
            for j in range(sums.size):
                sums[j] += row[j]


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
