"""Targets: names, public rows, and what is neither."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import fedwise as fw
from conftest import make_people
from fedwise.doubling.draw import ARTIFICIAL, PUBLIC
from fedwise.doubling.target import PublicRows, target_of


@pytest.fixture(scope="module")
def pool(small_schema) -> fw.Pool:
    plan = fw.plan(small_schema, epsilon=3.0)
    return fw.Pool.of(
        fw.release(plan, make_people(400, seed=i), client=f"c{i}", simulated=True, seed=i) for i in range(2)
    )


def test_names_stay_names(small_schema) -> None:
    assert target_of(None, small_schema) is None
    assert target_of(["c0", "c1"], small_schema) == ("c0", "c1")
    with pytest.raises(fw.FedwiseError, match=r"write \['c0'\], or name a \.parquet"):
        target_of("c0", small_schema)


@pytest.mark.parametrize("kind", ["polars", "pandas", "path", "text"])
def test_public_rows_from_a_frame_or_a_file(small_schema, tmp_path: Path, kind: str) -> None:
    rows, path = make_people(300, seed=5), tmp_path / "public.parquet"
    rows.write_parquet(path)
    given = {"polars": rows, "pandas": rows.to_pandas(), "path": path, "text": str(path)}[kind]
    found = target_of(given, small_schema)
    assert isinstance(found, PublicRows)
    assert len(found) == 300
    assert repr(found) == repr(PublicRows(rows, small_schema))
    assert repr(found) != repr(PublicRows(rows.head(299), small_schema))


def test_what_cannot_be_read_is_refused(small_schema, tmp_path: Path) -> None:
    rows = make_people(30, seed=5)
    with pytest.raises(fw.FedwiseError, match="target: "):
        target_of(rows.drop("SEX"), small_schema)
    with pytest.raises(fw.FedwiseError, match="at least one public row"):
        target_of(rows.head(0), small_schema)
    with pytest.raises(fw.FedwiseError, match=r"target: .*missing\.csv"):
        target_of(tmp_path / "missing.csv", small_schema)


def test_doubles_carry_public_rows_as_they_are(pool, tmp_path: Path) -> None:
    rows = make_people(300, seed=5)
    made = fw.doubles(pool, records=50, target=rows)
    assert made.target is not None
    assert made.target.equals(pool.plan.schema.select_rows(rows))
    made.save(tmp_path)
    assert PUBLIC in pl.read_parquet_metadata(tmp_path / "target.parquet")
    assert ARTIFICIAL not in pl.read_parquet_metadata(tmp_path / "target.parquet")
    assert ARTIFICIAL in pl.read_parquet_metadata(tmp_path / "c0.parquet")
