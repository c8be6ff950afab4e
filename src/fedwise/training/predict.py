"""Predict: a trained model on rows that may lack the target."""

from __future__ import annotations

import numpy as np
import polars as pl

from ..errors import DataError
from ..schema.frame import FrameLike, read
from ..schema.rule import Rule
from ..schema.schema import Column, Role
from .local import predict
from .run import Run


def predict_frame(run: Run, frame: FrameLike) -> pl.DataFrame:
    """Probability and label for each row that satisfies the schema's filter.

    Returns
    -------
    table
        Columns ``row`` (position in the input, from 0), ``probability`` of the positive class, and
        ``prediction``: the target's label at the threshold ½.
    """
    rows = read(frame)
    keep = np.ones(rows.height, dtype=bool)
    for text in run.schema.where:
        rule = Rule.parse(text)
        for name in rule.columns:
            if name not in rows.columns:
                raise DataError(f"column '{name}' is missing from the data; the filter '{text}' reads it")
        keep &= rule.evaluate(rows)[0]
    positions = np.flatnonzero(keep)
    rows = rows.filter(pl.Series(keep))
    for column in run.schema.columns:
        unused = column.role == Role.TARGET or (
            column.model == "drop" or (column.role == Role.SENSITIVE and not run.manifest.use_sensitive)
        )
        if unused:
            rows = rows.with_columns(_stand_in(column, rows))
    encoded = run.encoder.encode(rows)
    logits = predict(run.model, run.parameters(), encoded)
    target = run.schema.columns[run.schema.target]
    labels = np.array(target.labels[:2], dtype=object)
    return pl.DataFrame(
        {
            "row": positions,
            "probability": 1.0 / (1.0 + np.exp(-logits.astype(np.float64))),
            "prediction": labels[(logits > 0).astype(np.int64)].astype(str),
        }
    )


def _stand_in(column: Column, rows: pl.DataFrame) -> list[pl.Expr]:
    """A valid value in place of a column the model does not read, so that the schema accepts the rows."""
    if column.rule is not None:
        return [
            (pl.lit(c.value) if isinstance(c.value, str) else pl.lit(float(c.value))).alias(c.column)
            for c in Rule.parse(column.rule).comparisons
            if c.column not in rows.columns
        ]
    value = (
        column.levels[0] if column.levels is not None else column.bins[0] if column.bins is not None else 0
    )
    name = next((name for name in column.sources if name in rows.columns), column.sources[0])
    return [pl.lit(value).alias(name)]
