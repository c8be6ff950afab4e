"""Records: every metric of every round, as values and as one table."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence

import msgspec
import polars as pl

from ..errors import FedwiseError

#: Columns of the table.
COLUMNS = {
    "round": pl.Int64,
    "rows": pl.String,
    "client": pl.String,
    "metric": pl.String,
    "attribute": pl.String,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
}


class Record(msgspec.Struct, frozen=True):
    """One line of the table of metrics.

    `rows` says which rows were tested: ``all`` (held out, of all clients), ``own`` (held out, of the
    federation), or ``training`` (the loss a participant met while training, under its name).
    """

    round: int
    rows: str
    client: str
    metric: str
    attribute: str
    value: float
    low: float = math.nan
    high: float = math.nan


def to_frame(records: Sequence[Record]) -> pl.DataFrame:
    """Records as a table."""
    columns = {name: [getattr(record, name) for record in records] for name in COLUMNS}
    return pl.DataFrame(columns, schema=COLUMNS)


def final(table: pl.DataFrame, metric: str, attribute: str = "", *, rows: str = "all") -> float:
    """Last value of a metric in the records of a training; `attribute` only matters for fairness gaps."""
    known = table.filter(
        (pl.col("rows") == rows) & (pl.col("metric") == metric) & pl.col("attribute").is_in(["", attribute])
    )
    if known.is_empty():
        raise FedwiseError(
            f"metric '{metric}' was not recorded in training; metrics with @ come with the last round of runs "
            "made since 0.2, @best only without privacy in training"
            if "@" in metric
            else f"metric '{metric}' was not recorded in training"
        )
    return float(known.sort("round").get_column("value")[-1])


def to_parquet(records: Sequence[Record]) -> bytes:
    """Records as the bytes of a Parquet file."""
    buffer = io.BytesIO()
    to_frame(records).write_parquet(buffer)
    return buffer.getvalue()
