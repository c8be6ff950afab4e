"""Small federations for the tests of training: artificial rows with a known signal."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from fedwise.schema.schema import Schema
from fedwise.training.federation import Prepared, prepare

SCHEMA = Schema.parse(
    """
name = "toy"
[columns.AGE]
role = "feature"
bins = [0.0, 30.0, 60.0, 100.0]
model = "scaled"
missing = "other"
[columns.JOB]
role = "feature"
levels = ["a", "b", "c", "d"]
unknown = "other"
[columns.EDU]
role = "feature"
levels = [1, 2, 3, 4, 5]
[columns.SEX]
role = "sensitive"
levels = [1, 2]
[columns.RACE]
role = "sensitive"
levels = [1, 2, 3]
[columns.Y]
role = "target"
levels = [0, 1]
"""
)


def make_frame(rows: int, seed: int, *, tilt: float = 0.0) -> pl.DataFrame:
    """Rows whose target depends on age, job, education and sex; `tilt` moves the client's base rate."""
    rng = np.random.default_rng(seed)
    age, job = rng.uniform(0, 100, rows), rng.choice(list("abcd"), rows)
    edu, sex, race = rng.integers(1, 6, rows), rng.integers(1, 3, rows), rng.integers(1, 4, rows)
    z = (age - 50) / 25 + (edu - 3) * 0.8 + (job == "a") - (sex == 2) * 0.5 + tilt + rng.normal(size=rows)
    return pl.DataFrame(
        {"AGE": age, "JOB": job, "EDU": edu, "SEX": sex, "RACE": race, "Y": (z > 0).astype(np.int64)}
    )


@pytest.fixture(scope="session")
def schema() -> Schema:
    return SCHEMA


@pytest.fixture(scope="session")
def frames() -> dict[str, pl.DataFrame]:
    return {name: make_frame(160 + 40 * i, i, tilt=0.3 * (i - 2)) for i, name in enumerate("ABCDE")}


@pytest.fixture(scope="session")
def prepared(frames: dict[str, pl.DataFrame]) -> Prepared:
    return prepare(frames, SCHEMA)
