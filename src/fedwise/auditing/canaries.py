"""Canaries: the records an audit adds to the data, and whether it can tell that they are there.

One of each kind, because a fault may show with one and not with another: a domain taken from the data shows
with a record nobody resembles, a count cut at a limit with a crowded cell, a wrong code with values missing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from ..errors import DataError, FedwiseError
from ..planning import Plan
from ..schema.layout import Layout
from ..schema.schema import Schema

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int16]

#: How far the repeated canary is from the data without it, in standard deviations of the score: enough that more
#: copies would make its μ no more exact.
REACH = 8.0
#: More copies than this make releases slow. Only a promise below about ε = 0.015 asks for as many.
MOST_COPIES = 2000


@dataclass(frozen=True)
class Canary:
    """Rows that are added together: `copies` of one record, which adds 1 to each of `cells`."""

    name: str
    rows: pl.DataFrame
    copies: int
    cells: Ints


def choose(plan: Plan, data: pl.DataFrame, rng: np.random.Generator) -> list[Canary]:
    """The canaries of a plan for these rows, as many kinds as the schema allows.

    ``rarest``: in every column the value that fewest rows have, together perhaps for the first time.
    ``typical``: one of the rows. ``heaviest``: the row whose cells hold most records, in the tables of
    most precision. ``other``: values missing wherever the schema has a level for that. ``repeated``: a row
    that is there already, so many times that noise too small by a fraction shows.
    """
    codes = plan.schema.encode(data)
    if codes.shape[1] == 0:
        raise FedwiseError("audit needs at least one row to draw targets from")
    at = cells_of(codes, plan.layout)
    counts = np.bincount(at.ravel(), minlength=plan.layout.cells)
    crowd = (counts[at] * plan.sigmas[:, None] ** -2.0).sum(axis=0)
    heaviest, rare = int(np.argmax(crowd)), int(np.argmin(crowd))
    typical, again = (int(row) for row in rng.integers(0, codes.shape[1], 2))
    found = {
        "rarest": _rarest(plan.schema, data, codes, data[rare]),
        "typical": data[typical],
        "heaviest": data[heaviest],
        "other": _missing(plan.schema, data[typical]),
    }
    mu = math.sqrt(float(np.sum(plan.sigmas**-2.0)))
    copies = min(max(2, math.ceil(REACH / mu)), MOST_COPIES)
    canaries = [Canary(name, row, 1, _own_cells(plan, row)) for name, row in found.items() if row is not None]
    row = data[again]
    return [*canaries, Canary("repeated", pl.concat([row] * copies), copies, _own_cells(plan, row))]


def cells_of(codes: Codes, layout: Layout) -> Ints:
    """The cell of every table that each row falls into, shape (tables, rows); apart from what releases count with."""
    return np.stack(
        [
            layout.offsets[j] + codes[x].astype(np.int64) * layout.sizes[y] + codes[y]
            for j, (x, y) in enumerate(layout.pairs)
        ]
    )


def _own_cells(plan: Plan, row: pl.DataFrame) -> Ints:
    return cells_of(plan.schema.encode(row), plan.layout)[:, 0]


def _rarest(schema: Schema, data: pl.DataFrame, codes: Codes, fallback: pl.DataFrame) -> pl.DataFrame:
    """A row of rare values. A filter over several columns may refuse it; then the loneliest real row."""
    row = fallback
    for line, column in zip(codes, schema.columns, strict=True):
        seen = np.bincount(line)
        rare = int(np.argmin(seen[line]))
        for name in (name for name in column.sources if name in data.columns):
            trial = row.with_columns(data[name][rare : rare + 1].alias(name))
            row = trial if _fits(schema, trial) else row
    return row


def _missing(schema: Schema, row: pl.DataFrame) -> pl.DataFrame | None:
    """The row without the values that may be missing; None where none may."""
    changed = False
    for name in row.columns:
        trial = row.with_columns(pl.lit(None, dtype=row.schema[name]).alias(name))
        if _fits(schema, trial):
            row, changed = trial, True
    return row if changed else None


def _fits(schema: Schema, row: pl.DataFrame) -> bool:
    try:
        return bool(schema.encode(row).shape[1] == 1)
    except DataError:
        return False
