"""PFL: the loss as rows that are summed and a specification that the compiled kernels evaluate."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..errors import FedwiseError
from ..objective.information import LOG2E, ONE_RECORD, gradient, xlogx_slope
from ..objective.pfl import Counts, clips
from ..objective.weights import Weights, pair_weights, variable_weights
from .kernels import ClippedSpec, Spec, swap_losses

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: A width that is a multiple of the vector's unrolled length leaves no scalar remainder.
_PAD = 8
#: Nobody leaves or joins.
NOBODY = -1


class PFL:
    """The Potential Federation Loss, through the compiled kernels.

    Parameters
    ----------
    weights
        Weights of the four terms. Tables of weight zero are left out of the rows.
    clip
        Clip every summed table at zero and take its own marginals, as in the paper. Default: for plain
        estimates only; see `objective.pfl.clips`.
    """

    name = "pfl"

    def __init__(self, weights: Weights, *, clip: bool | None = None) -> None:
        self.weights = weights
        self.clip = clip
        self.spec: Spec | ClippedSpec | None = None
        self._shapes: tuple[tuple[int, int], ...] = ()

    def rows(self, estimates: Counts) -> Floats:
        """Rows in the layout the kernel of these estimates expects; sets `spec`."""
        per_table = pair_weights(estimates.schema, estimates.layout, self.weights)
        make = self._clipped_rows if clips(estimates, self.clip) else self._consistent_rows
        return make(estimates, per_table)

    def evaluate(self, sums: Floats) -> Floats:
        """Loss of each summed row."""
        rows = np.ascontiguousarray(sums, dtype=np.float64)
        swaps = np.column_stack([np.full(len(rows), NOBODY), np.arange(len(rows))])
        return losses_after(self._seen(), np.zeros(rows.shape[1]), rows, swaps)

    def gradient(self, sums: Floats) -> Floats:
        """∂loss/∂z of one summed row, with cells floored at one record where the slope would run away."""
        spec = self._seen()
        found = np.zeros_like(sums)
        if isinstance(spec, ClippedSpec):
            # Marginals and totals of such a row follow from its cells, so the whole slope lies on the cells.
            for (first, cells, _, _), weight, shape in zip(
                spec.tables, spec.table_weights, self._shapes, strict=True
            ):
                here = slice(int(first), int(first + cells))
                found[here] = weight * gradient(sums[here].reshape(shape), floor=ONE_RECORD).ravel()
            return found
        n = float(sums[-1])
        if n <= 0:
            return found
        slopes = xlogx_slope(sums, floor=ONE_RECORD)
        weighted = float(np.dot(spec.weights, np.maximum(sums, 0.0) * (slopes - LOG2E)))
        found = spec.weights * slopes / n
        found[-1] = spec.shift * LOG2E / n - weighted / n**2
        return found

    def _seen(self) -> Spec | ClippedSpec:
        if self.spec is None:
            raise FedwiseError("objective must see the estimates first; call rows(estimates)")
        return self.spec

    def _consistent_rows(self, estimates: Counts, per_table: Floats) -> Floats:
        layout = estimates.layout
        cell_weights = layout.per_cell(per_table)
        level_weights = np.repeat(variable_weights(layout, per_table), layout.sizes)
        cells, levels = np.flatnonzero(cell_weights), np.flatnonzero(level_weights)
        used = len(cells) + len(levels)
        width = -(-(used + 1) // _PAD) * _PAD
        rows = np.zeros((len(estimates.clients), width))
        rows[:, : len(cells)] = estimates.cells[:, cells]
        rows[:, len(cells) : used] = estimates.marginals[:, levels]
        rows[:, -1] = estimates.totals
        weights = np.zeros(width)
        weights[: len(cells)] = cell_weights[cells]
        weights[len(cells) : used] = level_weights[levels]
        self.spec = Spec(weights, float(per_table.sum()))
        return rows

    def _clipped_rows(self, estimates: Counts, per_table: Floats) -> Floats:
        layout = estimates.layout
        kept = [int(j) for j in np.flatnonzero(per_table)]
        self._shapes = shapes = tuple(layout.shapes[j] for j in kept)
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
        self.spec = ClippedSpec(tables, places, per_table[kept].copy(), width)
        return rows


def losses_after(spec: Spec | ClippedSpec, sums: Floats, rows: Floats, swaps: Ints) -> Floats:
    """Loss of one summed row after each swap of two positions of `rows`, either of which may be `NOBODY`."""
    losses = np.empty(len(swaps))
    swap_losses(spec, np.empty((2, spec.scratch)), sums, rows, swaps, np.zeros_like(sums), losses)
    return losses
