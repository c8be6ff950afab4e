"""Representative: an objective that asks a federation to look like the whole pool."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..estimation.estimates import Estimates
from ..objective.pfl import term_of

Floats = npt.NDArray[np.float64]


class Representative:
    """Mean over tables of |I_j(W) − I_j(pool)|, in bits: how far a federation's associations are from the pool's.

    Tables without a term in the loss (two sensitive attributes) are left out.
    """

    name = "representative"

    def __init__(self) -> None:
        self._shapes: list[tuple[int, int]] = []
        self._pool = np.zeros(0)

    def rows(self, estimates: Estimates) -> Floats:
        """The cells of the tables compared; sets the pool's information."""
        layout = estimates.layout
        kept = [j for j, (x, y) in enumerate(layout.pairs) if term_of(estimates.schema, x, y) is not None]
        self._shapes = [layout.shapes[j] for j in kept]
        rows = np.concatenate([estimates.cells[:, layout.slice(j)] for j in kept], axis=1)
        self._pool = self._information(rows.sum(axis=0, keepdims=True))[0]
        return np.ascontiguousarray(rows)

    def evaluate(self, sums: Floats) -> Floats:
        """Distance of each summed row to the pool."""
        distances: Floats = np.abs(self._information(sums) - self._pool).mean(axis=1)
        return distances

    def _information(self, sums: Floats) -> Floats:
        """Plug-in mutual information of each table. Shape (batch, tables)."""
        cells = np.maximum(sums, 0.0)
        logs = cells * np.log2(np.maximum(cells, 1e-300))
        found = np.zeros((len(sums), len(self._shapes)))
        first = 0
        for j, (a, b) in enumerate(self._shapes):
            table = cells[:, first : first + a * b].reshape(-1, a, b)
            joint = logs[:, first : first + a * b].sum(axis=1)
            down, across = table.sum(axis=2), table.sum(axis=1)
            n = down.sum(axis=1)
            parts = _entropy_sum(down) + _entropy_sum(across)
            with np.errstate(divide="ignore", invalid="ignore"):
                found[:, j] = np.where(n > 0, np.log2(n) + (joint - parts) / n, 0.0)
            first += a * b
        return found


def _entropy_sum(counts: Floats) -> Floats:
    sums: Floats = (counts * np.log2(np.maximum(counts, 1e-300))).sum(axis=1)
    return sums
