"""Population: artificial people of several clients together, each with the chance of every class of the target.

Each client gives people by its own model, as many as its share of the records. Drawn from the sum of the tables
instead, they would lose what only holds within a client: that with equal features more people are covered in one state
than in another, for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from .drawer import THREADS, Drawer
from .model import Records

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class People:
    """Artificial people.

    Parameters
    ----------
    frame
        Their values, in the columns the schema reads.
    codes
        Shape (people, variables): the codes of those values.
    chances
        Shape (people, levels of the target): the chance of each level given the rest of the record.
    """

    frame: pl.DataFrame
    codes: Records
    chances: Floats


def population(drawer: Drawer, clients: Sequence[int], records: int, *, seed: int) -> People:
    """People of the clients at these positions, by their estimated numbers of records."""
    counts = _apportioned(drawer.estimates.totals[list(clients)], records)
    asked = [(client, int(count)) for client, count in zip(clients, counts, strict=True) if count]
    with ThreadPoolExecutor(THREADS) as threads:
        parts = list(threads.map(lambda one: _people(drawer, one[0], one[1], seed), asked))
    return People(
        pl.concat([part.frame for part in parts]),
        np.concatenate([part.codes for part in parts]),
        np.concatenate([part.chances for part in parts]),
    )


def _people(drawer: Drawer, client: int, records: int, seed: int) -> People:
    """One client's. Their records are the model's own: fitted to the tables' counts one by one, as a double's are,
    they would lose some of the structure by which a model tells the classes apart.
    """
    name = drawer.estimates.clients[client]
    model = drawer.model_of(name, records)
    rng = np.random.default_rng([seed, client])
    rows = model.sample(records, sweeps=2, seed=int(rng.integers(2**62)))
    frame, codes = drawer.values.frame(rows, rng, drawer.scaled)
    target = drawer.estimates.schema.target
    chances = model.chances(codes, target)
    for number, scaled in drawer.scaled.items():
        numbers = frame.get_column(drawer.values.groups[number].rows.columns[0]).cast(float).to_numpy()
        for level in range(chances.shape[1]):
            other = codes.copy()
            other[:, target] = level
            chances[:, level] *= scaled.likelihood(other, numbers)
    return People(frame, codes, chances / np.maximum(chances.sum(axis=1, keepdims=True), 1e-300))


def _apportioned(totals: Floats, records: int) -> npt.NDArray[np.int64]:
    """Whole numbers that add up to `records`, in proportion to the totals (largest remainders)."""
    wanted = np.maximum(totals, 1.0) / np.maximum(totals, 1.0).sum() * records
    counts: npt.NDArray[np.int64] = np.floor(wanted).astype(np.int64)
    most = np.argsort(counts - wanted, kind="stable")[: records - int(counts.sum())]
    counts[most] += 1
    return counts
