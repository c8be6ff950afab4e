"""Representative: an objective that asks a federation to look like the whole pool."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .information import informations
from .pfl import Counts
from .weights import term_of

Floats = npt.NDArray[np.float64]


class Representative:
    """Mean over tables of |I_j(W) − I_j(pool)|, in bits: how far a federation's associations are from the pool's.

    Tables without a term in the loss (two sensitive attributes) are left out.
    """

    name = "representative"

    def __init__(self) -> None:
        self._shapes: list[tuple[int, int]] = []
        self._pool = np.zeros(0)

    def rows(self, estimates: Counts) -> Floats:
        """The cells of the tables compared; sets the pool's information."""
        layout = estimates.layout
        kept = [j for j, (x, y) in enumerate(layout.pairs) if term_of(estimates.schema, x, y) is not None]
        self._shapes = [layout.shapes[j] for j in kept]
        rows = np.concatenate([estimates.cells[:, layout.slice(j)] for j in kept], axis=1)
        self._pool = self._informations(rows.sum(axis=0, keepdims=True))[0]
        return np.ascontiguousarray(rows)

    def evaluate(self, sums: Floats) -> Floats:
        """Distance of each summed row to the pool."""
        distances: Floats = np.abs(self._informations(sums) - self._pool).mean(axis=1)
        return distances

    def _informations(self, sums: Floats) -> Floats:
        """Mutual information of each table. Shape (batch, tables)."""
        found = np.zeros((len(sums), len(self._shapes)))
        first = 0
        for j, (a, b) in enumerate(self._shapes):
            found[:, j] = informations(sums[:, first : first + a * b].reshape(-1, a, b))
            first += a * b
        return found
