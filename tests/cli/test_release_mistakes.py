"""plan, release, inspect, budget: every mistake of people we know of.

A mistake costs one clear sentence and exit code 2: no traceback, no file, no charge.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import fedwise as fw
from cli.cli_kit import RELEASE, SECRET, Run, check_refused, snapshot
from conftest import SMALL


def write(name: str, text: str | bytes) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())

    return apply


def swap(old: str, new: str) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        text = (folder / "plan.json").read_text()
        assert old in text
        (folder / "plan.json").write_text(text.replace(old, new, 1))

    return apply


def table(**columns: list[object]) -> Callable[[Path], None]:
    rows = {"AGE": [20, 30], "JOB": ["farm", "shop"], "SEX": [1, 2], "INCOME": [1, 99_999]} | columns

    def apply(folder: Path) -> None:
        pl.DataFrame(rows, strict=False).write_csv(folder / "people.csv")

    return apply


def directory(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).mkdir()


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


HEADER = "AGE,JOB,SEX,INCOME\n"
MISTAKES: dict[str, tuple[Callable[[Path], None] | None, tuple[object, ...], str]] = {
    "missing data": (remove("people.csv"), RELEASE, "'people.csv' does not exist"),
    "missing plan": (remove("plan.json"), RELEASE, "'plan.json' does not exist"),
    "empty data": (write("people.csv", ""), RELEASE, "'people.csv' is empty"),
    "empty plan": (write("plan.json", ""), RELEASE, "'plan.json' is empty"),
    "plan is a directory": (
        lambda f: [remove("plan.json")(f), directory("plan.json")(f)],
        RELEASE,
        "is a directory",
    ),
    "data is a directory": (directory("d"), ("release", "plan.json", "d", "-c", "CA"), "'d' is a directory"),
    "missing column": (write("people.csv", "AGE,JOB,INCOME\n1,farm,3\n"), RELEASE, "column 'SEX' is missing"),
    "missing column of the rule": (
        write("people.csv", "AGE,JOB,SEX\n1,farm,1\n"),
        RELEASE,
        "column 'INCOME' is missing",
    ),
    "wrong type": (table(AGE=[SECRET, "x"]), RELEASE, "column 'AGE' must hold numbers"),
    "wrong type in the rule": (table(INCOME=[SECRET, "x"]), RELEASE, "column 'INCOME' must hold numbers"),
    "outside the domain": (
        table(AGE=[20, 987_654]),
        RELEASE,
        "column 'AGE' holds a value outside its declared domain",
    ),
    "missing value": (table(SEX=[None, 1]), RELEASE, "column 'SEX' holds a missing value"),
    "duplicate column": (write("people.csv", "AGE,AGE,SEX\n1,2,3\n"), RELEASE, "column 'AGE' appears twice"),
    "ragged rows": (write("people.csv", f"{HEADER}1,{SECRET},1,1,1,1\n"), RELEASE, "cannot be read as CSV"),
    "no parquet": (
        write("p.parquet", SECRET),
        ("release", "plan.json", "p.parquet", "-c", "CA"),
        "cannot be read as Parquet",
    ),
    "target of one level": (
        write("s.toml", SMALL.replace('rule = "INCOME > 50000"', "levels = [1]")),
        ("plan", "s.toml", "-o", "p.json"),
        "target column 'RICH' must have at least 2 levels",
    ),
    "schema of no toml": (write("s.toml", "=="), ("plan", "s.toml", "-o", "p.json"), "not valid TOML"),
    "missing schema": (None, ("plan", "absent.toml", "-o", "p.json"), "'absent.toml' does not exist"),
    "no schema": (None, ("plan", "-o", "p.json"), "plan needs a schema"),
    "column declared twice": (write("s.toml", SMALL + SMALL), ("plan", "s.toml"), "not valid TOML"),
    "epsilon 0": (None, ("plan", "schema.toml", "-e", "0", "-o", "p.json"), "epsilon must be above 0, got 0"),
    "epsilon below 0": (
        None,
        ("plan", "schema.toml", "--epsilon=-1", "-o", "p.json"),
        "epsilon must be above 0, got -1",
    ),
    "epsilon nan": (None, ("plan", "schema.toml", "-e", "nan", "-o", "p.json"), "epsilon must be above 0"),
    "epsilon text": (
        None,
        ("plan", "schema.toml", "-e", "much", "-o", "p.json"),
        "--epsilon must be a number",
    ),
    "delta 0": (
        None,
        ("plan", "schema.toml", "-d", "0", "-o", "p.json"),
        "delta must lie between 0 and 1, got 0",
    ),
    "delta 1": (
        None,
        ("plan", "schema.toml", "-d", "1", "-o", "p.json"),
        "delta must lie between 0 and 1, got 1",
    ),
    "delta below 0": (
        None,
        ("plan", "schema.toml", "--delta=-0.1", "-o", "p.json"),
        "delta must lie between 0 and 1",
    ),
    "calibration": (
        None,
        ("plan", "schema.toml", "--calibration", "x", "-o", "p.json"),
        "calibration must be tight or rdp",
    ),
    "allocation": (
        None,
        ("plan", "schema.toml", "--allocation", "x", "-o", "p.json"),
        "allocation must be weighted or uniform",
    ),
    "missing weights": (
        None,
        ("plan", "schema.toml", "--weights", "w.toml", "-o", "p.json"),
        "'w.toml' does not exist",
    ),
    "plan exists": (None, ("plan", "schema.toml", "-o", "plan.json"), "'plan.json' exists"),
    "plan of another schema": (
        write("mine.toml", SMALL.replace("18", "19")),
        (*RELEASE, "--schema", "mine.toml"),
        "another schema than 'mine.toml'",
    ),
    "plan edited: epsilon": (swap('"epsilon": 1.0', '"epsilon": 0.1'), RELEASE, "does not match its digest"),
    "plan edited: sigma": (swap('"sigma": ', '"sigma": 1'), RELEASE, "does not match its digest"),
    "plan edited: domain": (swap('"farm"', '"form"'), RELEASE, "does not match its digest"),
    "plan no json": (write("plan.json", "{"), RELEASE, "plan file 'plan.json' is not valid"),
    "plan with unknown key": (swap('"format"', '"rows": 1, "format"'), RELEASE, "unknown field 'rows'"),
    "ledger is text": (write("people.csv.ledger.db", "x" * 2000), RELEASE, "is not a readable ledger"),
    "ledger is a directory": (directory("people.csv.ledger.db"), RELEASE, "is a directory"),
    "ledger nowhere": (None, (*RELEASE, "--ledger", "no/where.db"), "directory does not exist"),
    "ledger empty": (write("people.csv.ledger.db", ""), RELEASE, "is empty"),
    "budget 0": (None, (*RELEASE, "--budget", "0"), "epsilon must be above 0"),
    "budget below 0": (None, (*RELEASE, "--budget=-1"), "epsilon must be above 0"),
    "budget infinite": (None, (*RELEASE, "--budget", "inf"), "finite"),
    "client with separator": (
        None,
        (*RELEASE[:3], "-c", "../CA"),
        "client name must not hold path separators",
    ),
    "client with backslash": (
        None,
        (*RELEASE[:3], "-c", "a\\b"),
        "client name must not hold path separators",
    ),
    "client hidden": (None, (*RELEASE[:3], "-c", ".CA"), "nor start with a dot"),
    "client empty": (None, (*RELEASE[:3], "-c", ""), "client name must have 1 to 100"),
    "client breaks terminals": (None, (*RELEASE[:3], "-c", "a\x1b[2J"), "control characters"),
    "client too long for a file": (None, (*RELEASE[:3], "-c", "é" * 100 + "/"), "client name"),
    "file name too long": (None, (*RELEASE[:3], "-c", "漢" * 100), "cannot be written"),
    "output exists": (write("CA.release.json", "old"), RELEASE, "'CA.release.json' exists"),
    "output is a directory": (directory("d"), (*RELEASE, "-o", "d"), "'d' is a directory"),
    "output below a file": (None, (*RELEASE, "-o", "people.csv/x.json"), "cannot be written"),
    "seed of a real release": (None, (*RELEASE, "--seed", "1"), "seed must not be given for a real release"),
    "simulated without seed": (None, (*RELEASE, "--simulated"), "simulated noise must be seeded"),
    "negative seed": (None, (*RELEASE, "--simulated", "--seed=-1"), "seed must be at least 0"),
    "simulated with ledger": (
        None,
        (*RELEASE, "--simulated", "--seed", "1", "-l", "l.db"),
        "must not be released simulated",
    ),
    "inspect nothing": (None, ("inspect", "absent"), "do not exist"),
    "inspect empty directory": (directory("d"), ("inspect", "d"), "hold no *.release.json"),
    "inspect text": (write("x.json", "hello"), ("inspect", "x.json"), "'x.json' is not valid"),
    "inspect data": (None, ("inspect", "people.csv"), "'people.csv' is not valid"),
    "budget of nothing": (None, ("budget", "absent.db"), "'absent.db' does not exist"),
    "budget of text": (write("x.db", "x" * 2000), ("budget", "x.db"), "is not a readable ledger"),
    "draft of nothing": (
        None,
        ("plan", "--init", "absent.csv", "-o", "s.toml"),
        "'absent.csv' does not exist",
    ),
    "draft of an empty file": (
        write("e.csv", ""),
        ("plan", "--init", "e.csv", "-o", "s.toml"),
        "is empty; it needs at least a header line",
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_cost_one_sentence(case: str, run: Run, ready: Path) -> None:
    prepare, words, message = MISTAKES[case]
    if prepare is not None:
        prepare(ready)
    before = snapshot(ready)
    check_refused(run(*words), message)
    assert snapshot(ready) == before


@pytest.mark.parametrize(
    "words", [("release",), ("plan", "--epsilon"), ("nonsense",), ("release", "a", "b", "--nope")]
)
def test_usage_errors_exit_2(words: tuple[str, ...], run: Run) -> None:
    outcome = run(*words)
    assert outcome.code == 2
    assert outcome.out == ""
    assert "Traceback" not in outcome.err


def test_a_charged_ledger_survives_mistakes(run: Run, ready: Path) -> None:
    assert run(*RELEASE, "--budget", "5").code == 0
    before = snapshot(ready)
    for words, message in [
        (RELEASE, "exists"),
        ((*RELEASE, "-o", "b.json", "--budget", "9"), "differs from the one given"),
        ((*RELEASE, "-o", "b.json", "--simulated", "--seed", "1"), "must not be released simulated"),
        (
            ("release", "plan.json", "absent.csv", "-c", "CA", "-l", "people.csv.ledger.db", "-o", "b.json"),
            "does not exist",
        ),
    ]:
        check_refused(run(*words), message)
        assert snapshot(ready) == before
    fw.plan(fw.Schema.parse(SMALL), float("inf")).save(ready / "open.json")
    check_refused(
        run("release", "open.json", "people.csv", "-c", "x"), "must not be released without privacy"
    )
    assert not (ready / "x.release.json").exists()
    # The same plan again is the same release, and charged once; another plan is charged.
    assert run(*RELEASE, "--force").code == 0
    assert len(fw.Ledger(ready / "people.csv.ledger.db").history()) == 1
    fw.plan(fw.Schema.parse(SMALL), 0.5).save(ready / "half.json")
    assert run("release", "half.json", "people.csv", "-c", "CA", "--force").code == 0
    assert len(fw.Ledger(ready / "people.csv.ledger.db").history()) == 2


def test_debug_shows_a_traceback_without_data(ready: Path) -> None:
    """In a process of its own, as people run it; once with and once without --debug."""
    table(JOB=[SECRET, "x"], AGE=[SECRET, "y"])(ready)
    command = [sys.executable, "-m", "fedwise.cli.main", *map(str, RELEASE)]
    quiet = subprocess.run(command, cwd=ready, capture_output=True, text=True, timeout=60, check=False)
    assert quiet.returncode == 2
    assert quiet.stderr.count("\n") == 1
    loud = subprocess.run(
        [*command, "--debug"], cwd=ready, capture_output=True, text=True, timeout=60, check=False
    )
    assert loud.returncode != 0
    assert "Traceback" in loud.stderr
    assert "DataError" in loud.stderr
    assert SECRET not in loud.stderr
    assert not (ready / "people.csv.ledger.db").exists()
