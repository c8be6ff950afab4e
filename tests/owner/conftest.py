"""What the walks over every byte share: one owner's rows, what of them must stay, and an empty home."""

from __future__ import annotations

import tempfile
from pathlib import Path

import polars as pl
import pytest

import fedwise as fw
from owner.guild import INCOMES, RECORDS, SCHEMA, guild
from owner.leak_walk import Secrets


@pytest.fixture(scope="session")
def plan() -> fw.Plan:
    return fw.plan(fw.Schema.parse(SCHEMA))


@pytest.fixture(scope="session")
def rows() -> pl.DataFrame:
    return guild()


@pytest.fixture(scope="session")
def secrets(plan: fw.Plan, rows: pl.DataFrame) -> Secrets:
    found = Secrets.of(plan, rows)
    assert RECORDS in found.numbers
    assert len(found.numbers) > len(INCOMES) + 4
    return found


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place of its own for every file, temporary ones included."""
    place = tmp_path / "home"
    (place / "tmp").mkdir(parents=True)
    for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(place / "tmp" if name == "TMPDIR" else place))
    monkeypatch.setattr(tempfile, "tempdir", str(place / "tmp"))
    monkeypatch.chdir(place)
    return place
