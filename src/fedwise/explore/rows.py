"""Rows: the clients' rows of the search, shared between questions that differ in weights only.

Moving a slider changes how cells are weighted, not which cells there are. Copying the cells of thousands of
clients takes most of a second, so they are copied once for each set of tables in use.
"""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ..estimation.estimates import Estimates
from ..objective.weights import Weights, pair_weights, variable_weights
from ..search.problem import PFL, Problem

Floats = npt.NDArray[np.float64]

#: Sets of tables remembered; weights of zero leave tables out.
_KEEP = 3


class SharedRows:
    """Makes the `Problem` of any weights over one pool."""

    def __init__(self, estimates: Estimates) -> None:
        self.estimates = estimates
        self._first = replace(
            estimates,
            clients=estimates.clients[:1],
            cells=estimates.cells[:1],
            totals=estimates.totals[:1],
            marginals=estimates.marginals[:1],
            sigmas=estimates.sigmas[:1],
            posterior=None,
        )
        self._rows: dict[tuple[bytes, bytes], Floats] = {}
        self._lock = threading.Lock()

    def problem(self, weights: Weights) -> Problem:
        """As ``Problem.of(estimates, PFL(weights))``, without copying the cells again."""
        objective = PFL(weights)
        # One client is enough to lay out the weights.
        width = objective.rows(self._first).shape[1]
        key = self._key(weights)
        with self._lock:
            rows = self._rows.get(key)
            if rows is None:
                rows = Problem.of(self.estimates, PFL(weights)).rows
                while len(self._rows) >= _KEEP:
                    del self._rows[next(iter(self._rows))]
                self._rows[key] = rows
        assert rows.shape[1] == width
        return Problem(self.estimates.clients, rows, objective, objective.spec)

    def _key(self, weights: Weights) -> tuple[bytes, bytes]:
        """Which tables and which marginals have a weight: all that decides the contents of the rows."""
        per_table = pair_weights(self.estimates.schema, self.estimates.layout, weights)
        marginal = variable_weights(self.estimates.layout, per_table)
        return (per_table != 0).tobytes(), (marginal != 0).tobytes()
