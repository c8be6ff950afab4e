"""People of whom the older are rich, and the schema that reads them."""

from __future__ import annotations

import numpy as np
import polars as pl

import fedwise as fw

AGED = fw.Schema.parse(
    """
name = "aged"
[columns.AGE]
role = "feature"
bins = [0, 20, 40, 60, 100]
model = "scaled"
[columns.SEX]
role = "sensitive"
levels = [1, 2]
[columns.RICH]
role = "target"
levels = [0, 1]
"""
)


def aged(rows: int, middle: float, *, width: float, seed: int) -> pl.DataFrame:
    """At the age `middle` one half is rich, and nearly all are some widths later."""
    rng = np.random.default_rng(seed)
    age = rng.triangular(1, 35, 95, rows).astype(int)
    rich = rng.random(rows) < 1 / (1 + np.exp(-(age - middle) / width))
    return pl.DataFrame({"AGE": age, "SEX": rng.integers(1, 3, rows), "RICH": rich.astype(int)})
