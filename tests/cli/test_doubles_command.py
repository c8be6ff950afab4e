"""fedwise doubles: what it writes, says and refuses."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import fedwise as fw
from cli.cli_kit import Run, check_refused
from conftest import make_people


@pytest.fixture
def releases(ready: Path) -> Path:
    """Three releases of the small schema, in a folder of their own."""
    plan = fw.Plan.load(ready / "plan.json")
    folder = ready / "releases"
    folder.mkdir()
    for i, client in enumerate(("CA", "NY", "TX")):
        made = fw.release(plan, make_people(600, seed=i), client=client, simulated=True, seed=i)
        made.save(folder / f"{client}.release.json")
    return folder


def test_files_for_every_client(run: Run, releases: Path) -> None:
    told = run("doubles", str(releases), "-o", "doubles")
    assert told.code == 0
    assert "artificial records of 3 clients (simulated releases)" in told.out
    files = sorted(path.name for path in (releases.parent / "doubles").iterdir())
    assert files == ["CA.parquet", "NY.parquet", "TX.parquet"]
    frame = pl.read_parquet(releases.parent / "doubles" / "CA.parquet")
    assert fw.Plan.load(releases.parent / "plan.json").schema.encode(frame).shape[1] == frame.height


def test_json_some_clients_and_fewer_records(run: Run, releases: Path) -> None:
    told = run("doubles", str(releases), "-o", "d", "--clients", "NY,TX", "--records", "50", "--json")
    assert told.json["clients"] == {"NY": 50, "TX": 50}
    assert told.json["artificial"] is True
    assert told.json["label"] == "simulated"


def test_mistakes(run: Run, releases: Path) -> None:
    check_refused(run("doubles", str(releases), "-o", "d", "--clients", "NZ"), "no client 'NZ'")
    check_refused(run("doubles", str(releases), "-o", "d", "--records", "0"), "records must be at least 1")
    assert run("doubles", str(releases), "-o", "d").code == 0
    check_refused(run("doubles", str(releases), "-o", "d"), "exists already")
    assert run("doubles", str(releases), "-o", "d", "--force").code == 0
