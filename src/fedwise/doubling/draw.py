"""Doubles: artificial records of every client, drawn from its estimated tables.

A double has its client's estimated number of records and its estimated pair tables, and beyond pairs what they imply
(`fedwise.doubling.model`). Its columns are those the schema reads, so any code that trains on the client's rows trains
on its double. Drawing uses released tables alone: no privacy is spent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from ..errors import FedwiseError, PoolError, nearest
from ..estimation import Releases, estimate
from ..estimation.estimates import Estimates
from ..schema.schema import Schema
from .model import Grid, Model, shares_of
from .values import Values
from .within import scaled_columns

Floats = npt.NDArray[np.float64]
Records = npt.NDArray[np.int16]

#: Records and sweeps with which the pool's model, and then each client's, is learnt.
POOL_RECORDS, POOL_SWEEPS = 10_000, 16
CLIENT_RECORDS, CLIENT_SWEEPS = 3_000, 5
#: Sweeps that make a double's records independent of the pool's, and that fit them to the client's counts.
_FRESH, _FIT = 1, 3
#: Threads that draw; the loops are compiled and hold no lock.
THREADS = 2
#: What a file says of itself: these keys in the metadata of its Parquet.
ARTIFICIAL = "fedwise.artificial"


class Doubles(Mapping[str, pl.DataFrame]):
    """Artificial records by client.

    Attributes
    ----------
    schema
        What reads the records.
    label
        What protected the releases they were drawn from: see `fedwise.Pool.label`.
    seed
        Seed of the drawing.
    """

    def __init__(
        self, frames: Mapping[str, pl.DataFrame], schema: Schema, *, label: str = "", seed: int = 0
    ) -> None:
        self._frames = dict(frames)
        self.schema = schema
        self.label = label
        self.seed = seed

    def __getitem__(self, client: str) -> pl.DataFrame:
        if client not in self._frames:
            raise PoolError(f"doubles hold no client '{client}'{nearest(client, tuple(self._frames))}")
        return self._frames[client]

    def __contains__(self, client: object) -> bool:
        return client in self._frames

    def __iter__(self) -> Iterator[str]:
        return iter(self._frames)

    def __len__(self) -> int:
        return len(self._frames)

    def __repr__(self) -> str:
        rows = sum(frame.height for frame in self._frames.values())
        return f"Doubles: {rows:,} artificial records of {len(self)} clients ({self.label or 'unlabelled'} releases)"

    def save(self, folder: str | Path, *, force: bool = False) -> list[Path]:
        """Write a Parquet file for each client, marked as artificial in its metadata.

        Returns
        -------
        paths
            The files written.
        """
        folder = Path(folder)
        paths = [folder / f"{client}.parquet" for client in self]
        taken = [path for path in paths if path.exists()]
        if taken and not force:
            raise FedwiseError(f"'{taken[0]}' exists already; use force (--force) to replace it")
        folder.mkdir(parents=True, exist_ok=True)
        note = {
            ARTIFICIAL: "drawn by fedwise from released tables; a record may coincide with a person's by chance",
            "fedwise.releases": self.label,
            "fedwise.schema": self.schema.digest,
            "fedwise.seed": str(self.seed),
        }
        for path, frame in zip(paths, self.values(), strict=True):
            frame.write_parquet(path, metadata=note)
        return paths


def doubles(
    pool: Releases | Estimates,
    *,
    clients: Sequence[str] | None = None,
    records: int | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Doubles:
    """Draw the doubles of a pool's clients.

    Parameters
    ----------
    pool
        Releases, or estimates made from them.
    clients
        Whose doubles to draw; default all. A client's double does not depend on who else is drawn.
    records
        Most records of a double; default as many as the client is estimated to have.
    seed
        Equal seeds give equal doubles.
    progress
        Called with (doubles drawn, doubles).

    Examples
    --------
    >>> made = fw.doubles(pool, seed=0)             # doctest: +SKIP
    >>> made["CA"].head()                           # doctest: +SKIP
    """
    if isinstance(clients, str):
        raise PoolError(f"clients must be a list of names, got the text '{clients}'; write ['{clients}']")
    estimates = pool if isinstance(pool, Estimates) else estimate(pool)
    drawer = Drawer(estimates, seed=seed)
    names = tuple(estimates.clients if clients is None else clients)
    for name in names:
        if name not in estimates.clients:
            raise PoolError(f"pool holds no client '{name}'{nearest(name, estimates.clients)}")
    frames: dict[str, pl.DataFrame] = {}
    with ThreadPoolExecutor(THREADS) as threads:
        for name, frame in zip(names, threads.map(lambda n: drawer.frame(n, records), names), strict=True):
            frames[name] = frame
            if progress is not None:
                progress(len(frames), len(names))
    return Doubles(frames, estimates.schema, label=getattr(pool, "label", ""), seed=seed)


class Drawer:
    """Draws doubles of the clients of one pool, whose common model is fitted once."""

    def __init__(self, estimates: Estimates, *, seed: int = 0) -> None:
        self.estimates = estimates
        self.seed = seed
        self.grid = Grid(estimates.layout)
        self.values = Values(estimates.schema)
        self.base = self.shares(estimates.cells.sum(axis=0))
        self.model = Model.fit(
            self.grid, self.base, records=POOL_RECORDS, sweeps=POOL_SWEEPS, seed=_seed(seed, "pool")
        )
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

    def model_of(self, client: str, records: int) -> Model:
        """The pool's model moved to a client's tables, learnt with about so many records."""
        return self.model.moved(
            self._shares_of(client),
            records=min(max(records, 500), CLIENT_RECORDS),
            sweeps=CLIENT_SWEEPS,
            seed=_seed(self.seed, client),
            base=self.base,
        )

    def _shares_of(self, client: str) -> Floats:
        return self.shares(self.estimates.cells[self.estimates.clients.index(client)])

    def codes(self, client: str, records: int) -> Records:
        """Codes of a double, shape (records, variables)."""
        seed = _seed(self.seed, client)
        model = self.model_of(client, records)
        rows = model.sample(records, sweeps=_FRESH, seed=seed + 1)
        return model.refined(rows, self._shares_of(client) * records, sweeps=_FIT, seed=seed + 2)

    def frame(self, client: str, records: int | None = None) -> pl.DataFrame:
        """The double of a client, of at most so many records."""
        count = self.records_of(client) if records is None else min(records, self.records_of(client))
        rng = np.random.default_rng(_seed(self.seed, f"values of {client}"))
        return self.values.frame(self.codes(client, count), rng, self.scaled)[0]


def _seed(seed: int, what: str) -> int:
    """A seed for one purpose, the same whatever else is drawn."""
    return int.from_bytes(hashlib.sha256(f"{seed}\0{what}".encode()).digest()[:6])
