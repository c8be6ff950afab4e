"""What tests share: a small public schema, frames that fit it, and the census records where present."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import settings

import fedwise as fw

# The same examples on every machine; the first call of a compiled kernel may take seconds.
settings.register_profile("fedwise", deadline=None, derandomize=True)
settings.load_profile("fedwise")

# A shell starts background jobs deaf to Ctrl-C, and their children inherit it; some tests send one to theirs.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

SHARED = Path(__file__).parents[1].parent / "shared" / "data"

SMALL = """
name = "small"

[columns.AGE]
role = "feature"
bins = [0, 18, 40, 65, 120]

[columns.JOB]
role = "feature"
levels = ["farm", "shop", "office"]
missing = "other"
unknown = "other"

[columns.SEX]
role = "sensitive"
levels = [1, 2]

[columns.RICH]
role = "target"
rule = "INCOME > 50000"
"""


@pytest.fixture(autouse=True)
def no_quick_rehearsal(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """`select` and `demo` rehearse their choice for some seconds; only tests marked ``rehearses`` pay for it."""
    if "rehearses" not in request.keywords:
        monkeypatch.setattr("fedwise.cli.select.rehearsed_quickly", lambda selection, *_, **__: selection)
        monkeypatch.setattr("fedwise.cli.demo.rehearse_demo", lambda *_, **__: None)


@pytest.fixture(scope="session")
def small_schema() -> fw.Schema:
    """Two features, one sensitive attribute, a target by rule."""
    return fw.Schema.parse(SMALL)


def make_people(rows: int, seed: int = 0) -> pl.DataFrame:
    """Rows that fit the small schema: SEX and JOB move income, AGE moves JOB."""
    rng = np.random.default_rng(seed)
    age = rng.integers(0, 100, rows)
    job = np.where(age < 18, 0, rng.integers(0, 3, rows))
    sex = rng.integers(1, 3, rows)
    income = rng.normal(30_000 + 15_000 * job + 5_000 * (sex == 1), 15_000, rows).round()
    return pl.DataFrame(
        {
            "AGE": age,
            "JOB": np.array(["farm", "shop", "office"])[job],
            "SEX": sex,
            "INCOME": income,
        }
    )


@pytest.fixture(scope="session")
def people() -> pl.DataFrame:
    """A thousand rows for the small schema."""
    return make_people(1000)


@pytest.fixture(scope="session")
def acs_dir() -> Path:
    """Directory of the census records; the test is skipped where they are absent."""
    if not SHARED.is_dir():
        pytest.skip("needs the census records in ../shared/data")
    return SHARED
