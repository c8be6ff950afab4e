"""Planted leaks: proof that the walk over every byte finds what it looks for."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import fedwise as fw
from fedwise.errors import DataError
from owner.guild import INCOMES, NAMES, RECORDS, SEEN, UNSEEN
from owner.leak_walk import Secrets, Watch


def total_in_metadata(monkeypatch: pytest.MonkeyPatch, rows: pl.DataFrame) -> None:
    monkeypatch.setattr(sys.modules["fedwise.owner.release"], "__version__", f"0.1.0+{rows.height}")


def row_value_in_a_log(monkeypatch: pytest.MonkeyPatch, rows: pl.DataFrame) -> None:
    import logging

    _around_noise(
        monkeypatch, lambda tables: logging.getLogger("fedwise").debug("first: %s", rows["NAME"][0])
    )


def seen_levels_in_the_file(monkeypatch: pytest.MonkeyPatch, rows: pl.DataFrame) -> None:
    seen = sorted(set(rows["TRADE"].unique()) & set(SEEN))
    monkeypatch.setattr(sys.modules["fedwise.owner.release"], "__version__", ",".join(seen))


def unseen_levels_in_the_file(monkeypatch: pytest.MonkeyPatch, rows: pl.DataFrame) -> None:
    monkeypatch.setattr(sys.modules["fedwise.owner.release"], "__version__", f"no {UNSEEN[0]}")


def exact_tables_in_a_temporary_file(monkeypatch: pytest.MonkeyPatch, rows: pl.DataFrame) -> None:
    def dump(tables: Any) -> None:
        # The total goes along, as the last of the cumulated counts of any table does.
        with tempfile.NamedTemporaryFile(suffix=".npy") as file:
            first = tables.exact[tables.layout.slice(0)]
            np.save(file, np.cumsum(first))
            file.flush()
            os.rename(file.name, file.name + ".old")
            os.remove(file.name + ".old")
            Path(file.name).touch()

    _around_noise(monkeypatch, dump)


def count_on_the_screen(monkeypatch: pytest.MonkeyPatch, rows: pl.DataFrame) -> None:
    _around_noise(monkeypatch, lambda tables: sys.stderr.write(f"counted {rows.height:,} records\n"))


def total_as_a_float_in_the_ledger(monkeypatch: pytest.MonkeyPatch, rows: pl.DataFrame) -> None:
    import sqlite3

    def write(tables: Any) -> None:
        db = sqlite3.connect("extra.db", isolation_level=None)
        db.execute("CREATE TABLE t (n REAL)")
        db.execute("INSERT INTO t VALUES (?)", (rows.height + 0.0,))
        db.execute("INSERT INTO t VALUES (?)", (float(INCOMES[0]) / 1,))
        db.close()
        Path("extra.bin").write_bytes(np.array([rows.height], dtype="<f8").tobytes())

    _around_noise(monkeypatch, write)


def _around_noise(monkeypatch: pytest.MonkeyPatch, leak: Callable[[Any], object]) -> None:
    module = sys.modules["fedwise.owner.release"]
    real = module.add_noise

    def add_noise(tables: Any, sigmas: Any) -> Any:
        leak(tables)
        return real(tables, sigmas)

    monkeypatch.setattr(module, "add_noise", add_noise)


LEAKS = {
    total_in_metadata: f"number {RECORDS}",
    row_value_in_a_log: "text ",
    seen_levels_in_the_file: "levels ",
    unseen_levels_in_the_file: "levels ",
    exact_tables_in_a_temporary_file: f"binary {RECORDS}",
    count_on_the_screen: f"number {RECORDS:,}",
    total_as_a_float_in_the_ledger: f"binary {RECORDS}",
}


@pytest.mark.parametrize("leak", LEAKS, ids=lambda leak: leak.__name__)
def test_planted_leaks_are_found(
    leak: Callable[..., None],
    home: Path,
    rows: pl.DataFrame,
    plan: fw.Plan,
    secrets: Secrets,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    leak(monkeypatch, rows)
    with Watch(home, home.parent / "vault") as watch:
        fw.release(plan, rows, client="ash", uncharged=True).save(home / "ash.release.json")
        shown = capfd.readouterr()
        watch.note("stdout", shown.out)
        watch.note("stderr", shown.err)
    assert any(LEAKS[leak] in what for what in watch.walk(secrets))


def test_a_count_in_an_error_text_is_found(
    home: Path, rows: pl.DataFrame, plan: fw.Plan, secrets: Secrets, monkeypatch: pytest.MonkeyPatch
) -> None:
    def encode(column: Any, frame: pl.DataFrame) -> Any:
        try:
            raise KeyError(NAMES[0])
        except KeyError as cause:
            raise DataError(f"none of {frame.height} rows fits") from cause

    monkeypatch.setattr("fedwise.schema.schema.encode_column", encode)
    with Watch(home, home.parent / "vault") as watch:
        with pytest.raises(DataError) as caught:
            fw.release(plan, rows, client="ash", uncharged=True)
        watch.note_error("failure", caught.value)
    found = watch.walk(secrets)
    assert any(f"number {RECORDS}" in what for what in found)
    assert any(f"text {NAMES[0]}" in what for what in found)
