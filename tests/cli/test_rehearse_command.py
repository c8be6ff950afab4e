"""fedwise rehearse: what it says, keeps and refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedwise as fw
from cli.cli_kit import Run, check_refused
from conftest import make_people
from fedwise.rehearsal.performance import Rehearsed

QUICK = ("--rounds", "2", "--model", "logistic", "--records", "80", "--stages", "2", "--random", "2")


@pytest.fixture
def releases(ready: Path) -> Path:
    """Four releases of the small schema, in a folder of their own."""
    plan = fw.Plan.load(ready / "plan.json")
    folder = ready / "releases"
    folder.mkdir()
    for i, client in enumerate(("CA", "NY", "TX", "VT")):
        made = fw.release(plan, make_people(600, seed=i), client=client, simulated=True, seed=i)
        made.save(folder / f"{client}.release.json")
    return folder


def test_a_table_a_verdict_and_a_file(run: Run, releases: Path) -> None:
    told = run("rehearse", releases, "--federation", "CA,NY", "--alone", "-o", "rehearsal.json", *QUICK)
    assert told.code == 0, told.err
    assert "\nRehearsed beside 2 random federations of 2: " in told.out
    assert "AUC" in told.out
    assert "CA alone" in told.out
    kept = Rehearsed.load(releases.parent / "rehearsal.json")
    assert kept.federation.clients == ("CA", "NY")
    check_refused(
        run("rehearse", releases, "--federation", "CA,NY", "-o", "rehearsal.json", *QUICK), "rehearsal.json"
    )


def test_a_selection_file_and_json(run: Run, releases: Path) -> None:
    assert run("select", releases, "-k", "2", "-o", "selection.json").code == 0
    told = run("rehearse", releases, "--federation", "selection.json", "--json", *QUICK)
    chosen = fw.Selection.load(releases.parent / "selection.json").clients
    assert tuple(told.json["performances"][0]["clients"]) == chosen  # type: ignore[index]
    assert told.json["label"] == "simulated"


def test_mistakes(run: Run, releases: Path) -> None:
    check_refused(run("rehearse", releases, "--federation", "CB", *QUICK), "no client 'CB'")
    check_refused(run("rehearse", releases, "--federation", "none.json", *QUICK), "none.json")
    check_refused(run("rehearse", releases, "--federation", "CA", "--target", "XX", *QUICK), "no client 'XX'")
