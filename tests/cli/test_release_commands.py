"""plan, release, inspect, budget: what people type, and every mistake of theirs we know of.

A mistake costs one clear sentence and exit code 2: no traceback, no file, no charge.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import polars as pl
import pytest

import fedwise as fw
from conftest import SMALL, make_people
from fedwise.cli.main import main

SECRET = "S3NT1NEL"


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, object]:
        """The one JSON object on stdout."""
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found


Run = Callable[..., Outcome]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Run the command line in this process, in a directory of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*words: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["fedwise", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            main()
        shown = capsys.readouterr()
        code = caught.value.code
        return Outcome(code if isinstance(code, int) else 0, shown.out, shown.err)

    return call


@pytest.fixture
def ready(tmp_path: Path) -> Path:
    """A directory with a schema, a plan at epsilon 1, and data."""
    (tmp_path / "schema.toml").write_text(SMALL)
    fw.plan(fw.Schema.parse(SMALL)).save(tmp_path / "plan.json")
    make_people(50).write_csv(tmp_path / "people.csv")
    return tmp_path


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def check_refused(outcome: Outcome, message: str, *, code: int = 2) -> None:
    """One sentence on stderr that names the culprit, and nothing else."""
    assert outcome.code == code, outcome.err
    assert outcome.out == ""
    assert message in outcome.err
    assert "Traceback" not in outcome.err
    assert SECRET not in outcome.err
    lines = outcome.err.strip().splitlines()
    assert len(lines) == 1, outcome.err
    assert lines[0].startswith("error: ")


# --- The way it is meant ---------------------------------------------------------------------------------


def test_plan_release_inspect_budget(run: Run, ready: Path) -> None:
    made = run("plan", "schema.toml", "--epsilon", "0.5", "-o", "half.json")
    assert made.code == 0
    assert made.out == ""
    assert "(0.5, 1e-05)-differential privacy" in made.err.replace("\n", " ").replace("  ", " ")
    plan = fw.Plan.load(ready / "half.json")

    first = run("release", "half.json", "people.csv", "--client", "CA", "--budget", "1", "--json")
    assert first.code == 0
    assert first.json["label"] == "private"
    assert first.json["plan_digest"] == plan.digest
    release = fw.Release.load(ready / "CA.release.json")
    assert release.plan == plan

    book = run("budget", "people.csv.ledger.db", "--json").json
    assert [c["client"] for c in book["history"]] == ["CA"]  # type: ignore[attr-defined]
    assert book["balance"]["spent"] == pytest.approx(0.5, rel=0.01)  # type: ignore[index]
    told = run("budget", "people.csv.ledger.db")
    assert told.out == ""
    assert "spent epsilon 0.5 of 1" in told.err

    seen = run("inspect", "CA.release.json", "--json").json
    assert seen["flagged"] == []
    assert seen["tables"] == 6
    assert seen["private"] is True
    assert seen["simulated"] is False
    shown = run("inspect", ".")
    assert shown.code == 2  # the directory also holds half.json, which is no release
    (ready / "half.json").rename(ready / "plan.json")
    shown = run("inspect", ".")
    assert shown.code == 0
    assert "CA" in shown.err
    assert "ok" in shown.err
    assert shown.out == ""


def test_json_is_exactly_one_object(run: Run, ready: Path) -> None:
    for words in [
        ("plan", "schema.toml"),
        ("plan", "schema.toml", "-o", "new.json"),
        ("plan", "--init", "people.csv"),
        ("release", "plan.json", "people.csv", "-c", "CA"),
        ("inspect", "CA.release.json"),
        ("inspect", "plan.json"),
        ("budget", "people.csv.ledger.db"),
    ]:
        outcome = run(*words, "--json")
        assert outcome.code == 0, outcome.err
        assert isinstance(outcome.json, dict)


def test_plan_prints_to_stderr_and_shipped_schemas_have_names(run: Run) -> None:
    outcome = run("plan", "income", "--json")
    assert len(outcome.json["tables"]) == 55  # type: ignore[arg-type]
    outcome = run("plan", "income", "--calibration", "rdp", "--allocation", "uniform")
    assert outcome.out == ""
    assert "36.34" in outcome.err
    outcome = run("plan", "incom")
    check_refused(outcome, "did you mean 'income'?")


def test_draft(run: Run, ready: Path) -> None:
    outcome = run("plan", "--init", "people.csv", "-o", "draft.toml")
    assert outcome.code == 0
    assert "never from the rows" in " ".join(outcome.err.split())
    text = (ready / "draft.toml").read_text()
    assert '[columns."AGE"]' in text
    check_refused(run("plan", "draft.toml"), "draft.toml")
    check_refused(run("plan", "--init", "people.csv", "-o", "draft.toml"), "exists")
    assert run("plan", "--init", "people.csv", "-o", "draft.toml", "--force").code == 0
    printed = run("plan", "--init", "people.csv")
    assert printed.out.strip() == text.strip()


def test_epsilon_inf_says_so_everywhere(run: Run, ready: Path) -> None:
    assert "NO PRIVACY" in run("plan", "schema.toml", "--epsilon", "inf", "-o", "open.json").err
    outcome = run("release", "open.json", "people.csv", "-c", "CA")
    assert outcome.code == 0
    assert "not private" in outcome.err
    assert "NO PRIVACY" in outcome.err
    assert "NO PRIVACY" in run("inspect", "CA.release.json").err
    assert run("inspect", "CA.release.json", "--json").json["private"] is False
    assert not (ready / "people.csv.ledger.db").exists()


def test_simulated_says_so_everywhere(run: Run, ready: Path) -> None:
    words = ("release", "plan.json", "people.csv", "-c", "CA", "--simulated", "--seed", "3")
    outcome = run(*words)
    assert outcome.code == 0
    assert "WARNING" in outcome.err
    first = (ready / "CA.release.json").read_bytes()
    assert run(*words, "--force").code == 0
    assert (ready / "CA.release.json").read_bytes() == first
    assert "SIMULATED" in run("inspect", "CA.release.json").err
    assert not (ready / "people.csv.ledger.db").exists()


# --- Mistakes --------------------------------------------------------------------------------------------


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


RELEASE = ("release", "plan.json", "people.csv", "--client", "CA")
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
        "'w.toml' cannot be read",
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
        "cannot be read as CSV",
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
    # The same data again, on purpose: charged a second time.
    assert run(*RELEASE, "--force").code == 0
    assert len(fw.Ledger(ready / "people.csv.ledger.db").history()) == 2


def test_force_overwrites(run: Run, ready: Path) -> None:
    (ready / "CA.release.json").write_text("old")
    assert run(*RELEASE, "--force").code == 0
    assert fw.Release.load(ready / "CA.release.json").client == "CA"
    assert run("plan", "schema.toml", "-o", "plan.json", "--force").code == 0


def test_over_budget_exits_3_with_the_sums(run: Run, ready: Path) -> None:
    assert run(*RELEASE).code == 0
    before = snapshot(ready)
    outcome = run(*RELEASE, "-o", "again.json")
    assert outcome.code == 3
    assert outcome.out == ""
    assert "Traceback" not in outcome.err
    for word in ("Requested:", "Remaining:", "Difference:"):
        assert word in outcome.err
    assert snapshot(ready) == before
    assert run("budget", "people.csv.ledger.db", "--set-epsilon", "4").code == 0
    assert run(*RELEASE, "-o", "again.json").code == 0


def test_inspect_exits_1_on_a_doctored_release(run: Run, ready: Path) -> None:
    plan = fw.Plan.load(ready / "plan.json")
    made = fw.release(plan, ready / "people.csv", client="CA")
    tables = list(made.tables)
    tables[0] = msgspec.structs.replace(tables[0], counts=[c + 2000 for c in tables[0].counts])
    (ready / "r").mkdir()
    msgspec.structs.replace(made, tables=tuple(tables)).save(ready / "r" / "CA.release.json")
    fw.release(plan, ready / "people.csv", client="NY").save(ready / "r" / "NY.release.json")
    outcome = run("inspect", "r", "--json")
    assert outcome.code == 1
    assert outcome.json["flagged"] == ["CA"]
    told = run("inspect", "r")
    assert told.code == 1
    assert "contradict" in told.err


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
