"""Problem: what the searches see. One row a client, and a function of summed rows to minimise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from ..errors import FedwiseError
from ..estimation.estimates import Estimates
from ..objective.pfl import Weights, pair_weights
from .kernels import Spec, add_losses, batch_losses, drop_losses, path_losses

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_PAD = 8
_NO_TABLES = np.zeros((0, 4), np.int64)
_NO_PLACES = np.zeros((0, 3), np.int64)


@runtime_checkable
class Objective(Protocol):
    """Anything `select` can minimise: a function of a federation's summed rows.

    `rows` is called once a search, before `evaluate`. An objective that is a weighted sum of x·log2 x
    may also offer an attribute ``spec`` (a `kernels.Spec`, set by `rows`) and is then searched by the
    compiled kernels instead of through `evaluate`. One with limits of its own may offer ``missed(sums)``:
    sentences about the limits that a federation does not keep, shown as flags of the selection.
    """

    name: str

    def rows(self, estimates: Estimates) -> Floats:
        """What is summed: shape (clients, width), float64."""

    def evaluate(self, sums: Floats) -> Floats:
        """Loss of each summed row, lower is better: shape (batch, width) to (batch,)."""


class PFL:
    """The Potential Federation Loss, through the compiled kernels.

    Parameters
    ----------
    weights
        Weights of the four terms. Tables of weight zero are left out of the rows.
    """

    name = "pfl"

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.spec: Spec | None = None

    def rows(self, estimates: Estimates) -> Floats:
        """Rows in the layout the kernel of these estimates expects; sets `spec`."""
        per_table = pair_weights(estimates.schema, estimates.layout, self.weights)
        if estimates.marginals is None:
            return self._plain_rows(estimates, per_table)
        return self._consistent_rows(estimates, estimates.marginals, per_table)

    def evaluate(self, sums: Floats) -> Floats:
        """Loss of each summed row."""
        if self.spec is None:
            raise FedwiseError("objective must see the estimates first; call rows(estimates)")
        losses: Floats = batch_losses(self.spec, np.ascontiguousarray(sums, dtype=np.float64))
        return losses

    def gradient(self, sums: Floats) -> Floats:
        """∂loss/∂z of one summed row, with cells floored at one record where log2 would run away."""
        assert self.spec is not None
        spec = self.spec
        if spec.plain == 0:
            n = sums[-1]
            if n <= 0:
                return np.zeros_like(sums)
            logs = np.log2(np.maximum(sums, 1.0))
            gradient: Floats = spec.weights * (logs + 1 / math.log(2)) / n
            weighted = float(np.dot(spec.weights, np.maximum(sums, 0.0) * logs))
            gradient[-1] = spec.shift / (n * math.log(2)) - weighted / n**2
            return gradient
        # Marginals and totals of a plain row follow from its cells, so the whole slope lies on the cells.
        gradient = np.zeros_like(sums)
        for (first, cells, margin, _), weight in zip(spec.tables, spec.table_weights, strict=True):
            columns = int(np.sum(spec.places[first : first + cells, 0] == margin))
            table = np.maximum(sums[first : first + cells], 0.0).reshape(-1, columns)
            n = float(table.sum())
            if n <= 0:
                continue
            down = np.log2(np.maximum(table.sum(axis=1), 1.0))[:, None]
            across = np.log2(np.maximum(table.sum(axis=0), 1.0))[None, :]
            pointwise = np.log2(np.maximum(table, 1.0)) + math.log2(n) - down - across
            information = float((table * pointwise).sum() / n)
            gradient[first : first + cells] = (weight * (pointwise - information) / n).ravel()
        return gradient

    def _consistent_rows(self, estimates: Estimates, marginals: Floats, per_table: Floats) -> Floats:
        layout = estimates.layout
        cell_weights = layout.per_cell(per_table)
        marginal_weights = np.zeros(len(layout.sizes))
        for (x, y), weight in zip(layout.pairs, per_table, strict=True):
            marginal_weights[x] -= weight
            marginal_weights[y] -= weight
        level_weights = np.repeat(marginal_weights, layout.sizes)
        cells, levels = np.flatnonzero(cell_weights), np.flatnonzero(level_weights)
        used = len(cells) + len(levels)
        # A width that is a multiple of the vector's unrolled length leaves no scalar remainder.
        width = -(-(used + 1) // _PAD) * _PAD
        rows = np.zeros((len(estimates.clients), width))
        rows[:, : len(cells)] = estimates.cells[:, cells]
        rows[:, len(cells) : used] = marginals[:, levels]
        rows[:, -1] = estimates.totals
        weights = np.zeros(width)
        weights[: len(cells)] = cell_weights[cells]
        weights[len(cells) : used] = level_weights[levels]
        self.spec = Spec(0, weights, float(per_table.sum()), _NO_TABLES, _NO_PLACES, np.zeros(0), 0)
        return rows

    def _plain_rows(self, estimates: Estimates, per_table: Floats) -> Floats:
        layout = estimates.layout
        kept = [int(j) for j in np.flatnonzero(per_table)]
        shapes = [layout.shapes[j] for j in kept]
        cells = sum(a * b for a, b in shapes)
        width = cells + sum(a + b for a, b in shapes) + len(kept)
        rows = np.zeros((len(estimates.clients), width))
        tables = np.zeros((len(kept), 4), np.int64)
        places = np.zeros((cells, 3), np.int64)
        first, margin = 0, cells
        for at, (j, (a, b)) in enumerate(zip(kept, shapes, strict=True)):
            tables[at] = (first, a * b, margin, a + b)
            total = width - len(kept) + at
            block = estimates.cells[:, layout.slice(j)]
            table = block.reshape(-1, a, b)
            rows[:, first : first + a * b] = block
            rows[:, margin : margin + a] = table.sum(axis=2)
            rows[:, margin + a : margin + a + b] = table.sum(axis=1)
            rows[:, total] = block.sum(axis=1)
            x, y = np.divmod(np.arange(a * b), b)
            places[first : first + a * b] = np.stack(
                [margin + x, margin + a + y, np.full(a * b, total)], axis=1
            )
            first += a * b
            margin += a + b
        self.spec = Spec(1, np.zeros(0), 0.0, tables, places, per_table[kept].copy(), width)
        return rows


@dataclass(frozen=True)
class Problem:
    """Rows of all clients and the objective over their sums.

    Use `Problem.of`. `spec` is ``None`` for an objective without compiled kernels.
    """

    clients: tuple[str, ...]
    rows: Floats
    objective: Objective
    spec: Spec | None

    @classmethod
    def of(cls, estimates: Estimates, objective: Objective) -> Problem:
        """Bind an objective to the estimates, and check what it returns."""
        rows = np.ascontiguousarray(objective.rows(estimates), dtype=np.float64)
        if rows.ndim != 2 or rows.shape[0] != len(estimates.clients):
            raise FedwiseError(
                f"objective '{objective.name}' must return one row for each of the "
                f"{len(estimates.clients)} clients, got an array of shape {rows.shape}"
            )
        if not np.isfinite(rows).all():
            raise FedwiseError("estimates must be finite numbers, got NaN or infinity; check the releases")
        return cls(estimates.clients, rows, objective, getattr(objective, "spec", None))

    @property
    def width(self) -> int:
        """Entries of a row."""
        return int(self.rows.shape[1])

    def sums(self, federation: Sequence[int] | Ints) -> Floats:
        """The summed row of client positions."""
        summed: Floats = self.rows[np.asarray(federation, dtype=np.int64)].sum(axis=0)
        return summed

    def loss(self, federation: Sequence[int] | Ints) -> float:
        """Loss of client positions, summed in sorted order so that equal sets have equal losses."""
        return float(self.evaluate(self.sums(np.sort(np.asarray(federation, np.int64)))[None, :])[0])

    def evaluate(self, sums: Floats) -> Floats:
        """Loss of each summed row; a slower objective's answer is checked."""
        losses = np.asarray(self.objective.evaluate(sums), dtype=np.float64)
        if losses.shape != (len(sums),):
            raise FedwiseError(
                f"objective '{self.objective.name}' must return one loss for each summed row, got shape "
                f"{losses.shape} for {len(sums)} rows"
            )
        if np.isnan(losses).any():
            raise FedwiseError(f"objective '{self.objective.name}' returned NaN; give such a federation +inf")
        return losses

    def joined(self, base: Floats, candidates: Ints) -> Floats:
        """Losses of `base` plus each candidate."""
        if self.spec is not None:
            losses: Floats = add_losses(self.spec, self.rows, base, candidates)
            return losses
        return self.evaluate(base + self.rows[candidates])

    def dropped(self, sums: Floats, members: Ints) -> Floats:
        """Losses of `sums` without each member."""
        if self.spec is not None:
            losses: Floats = drop_losses(self.spec, self.rows, sums, members)
            return losses
        return self.evaluate(sums - self.rows[members])

    def along(self, paths: Ints) -> Floats:
        """Losses while the clients of each path join one by one. Shape (paths, k)."""
        if self.spec is not None:
            losses: Floats = path_losses(self.spec, self.rows, np.zeros(self.width), paths)
            return losses
        return np.stack([self.evaluate(np.cumsum(self.rows[path], axis=0)) for path in paths])
