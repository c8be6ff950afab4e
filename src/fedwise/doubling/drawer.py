"""Drawer: draws doubles of the clients of one pool from a model fitted once."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
import polars as pl

from ..cache import Cache
from ..estimation.estimates import Estimates
from ..estimation.variation import varied
from .joint import JointModel, JointShares, Space
from .model import Grid, Model, shares_of
from .values import Values
from .within import scaled_columns

Floats = npt.NDArray[np.float64]
Records = npt.NDArray[np.int16]

#: Records and sweeps with which the pool's model, and then each client's, is learnt.
POOL_RECORDS, POOL_SWEEPS = 10_000, 16
CLIENT_RECORDS, CLIENT_SWEEPS = 3_000, 16
#: Least records with which a client's model is learnt, however few are drawn from it.
_LEAST_RECORDS = 1_500
#: Sweeps that make a double's records independent of the pool's, and that fit them to the client's counts.
_FRESH, _FIT = 1, 3
#: Threads that draw; the loops are compiled and hold no lock.
THREADS = 2


class Drawer:
    """Draws doubles of the clients of one pool, whose common model is fitted once."""

    def __init__(self, estimates: Estimates, *, seed: int = 0) -> None:
        self.estimates = estimates = varied(estimates)
        self.seed = seed
        self.grid = Grid(estimates.layout)
        self.values = Values(estimates.schema)
        self.base = self.shares(estimates.cells.sum(axis=0))
        self.model = Model.fit(
            self.grid, self.base, records=POOL_RECORDS, sweeps=POOL_SWEEPS, seed=_seed(seed, "pool")
        )
        self.fitted: Model | JointModel = self.model
        self._joint: JointShares | None = None
        self._goal_base = self.base
        if estimates.joint is not None:
            space = Space(estimates.joint.folding)
            self._joint = JointShares(space, estimates)
            self._goal_base = self._joint.of(self.base, None)
            self.fitted = JointModel.fit(
                space, self._goal_base, records=POOL_RECORDS, sweeps=POOL_SWEEPS, seed=_seed(seed, "pool")
            )
        self._goals: Cache[str, Floats] = Cache()
        #: Where numbers lie within their bins: as in the pool, since a client's own tables are too noisy for it.
        self.scaled = scaled_columns(self.values, self.model, self.base)

    def shares(self, cells: Floats) -> Floats:
        """Shares of each table, with nothing where no record can be."""
        layout = self.grid.layout
        cells = np.maximum(cells, 0.0)
        for j, (x, y) in enumerate(layout.pairs):
            cells[layout.slice(j)] *= self.values.possible(x, y).ravel()
        return shares_of(layout, cells)

    def records_of(self, client: str) -> int:
        """The estimated number of records of a client, at least 1."""
        return max(1, round(float(self.estimates.totals[self.estimates.clients.index(client)])))

    def model_of(self, client: str, records: int) -> Model | JointModel:
        """The pool's model moved to a client's tables, learnt with about so many records."""
        return self.fitted.moved(
            self._goal(client),
            records=min(max(records, _LEAST_RECORDS), CLIENT_RECORDS),
            sweeps=CLIENT_SWEEPS,
            seed=_seed(self.seed, client),
            base=self._goal_base,
        )

    def _goal(self, client: str) -> Floats:
        """A client's tables as shares, in the layout of the model."""
        return self._goals.get(client, lambda: self._shares_of(client))

    def _shares_of(self, client: str) -> Floats:
        place = self.estimates.clients.index(client)
        pairs = self.shares(self.estimates.cells[place])
        return pairs if self._joint is None else self._joint.of(pairs, place)

    def codes(self, client: str, records: int) -> Records:
        """Codes of a double, shape (records, variables)."""
        seed = _seed(self.seed, client)
        model = self.model_of(client, records)
        rows = model.sample(records, sweeps=_FRESH, seed=seed + 1)
        return model.refined(rows, self._goal(client) * records, sweeps=_FIT, seed=seed + 2)

    def frame(self, client: str, records: int | None = None) -> pl.DataFrame:
        """The double of a client, of at most so many records."""
        count = self.records_of(client) if records is None else min(records, self.records_of(client))
        rng = np.random.default_rng(_seed(self.seed, f"values of {client}"))
        return self.values.frame(self.codes(client, count), rng, self.scaled)[0]


def _seed(seed: int, what: str) -> int:
    """A seed for one purpose, the same whatever else is drawn."""
    return int.from_bytes(hashlib.sha256(f"{seed}\0{what}".encode()).digest()[:6])
