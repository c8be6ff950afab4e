"""Forty mistakes of a first afternoon: each costs one sentence that names cause and cure, and charges nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import fedwise as fw
from cli.cli_kit import Run, snapshot
from conftest import SMALL, make_people

Change = Callable[[Path], object]
RELEASE = ("release", "plan.json", "people.csv", "--client", "CA")


def text(name: str, old: str, new: str) -> Change:
    def apply(folder: Path) -> None:
        before = (folder / name).read_text()
        assert old in before
        (folder / name).write_text(before.replace(old, new))

    return apply


def rows(header: str, *lines: str) -> Change:
    return lambda folder: (folder / "people.csv").write_text("\n".join([header, *lines, ""]))


def schema(old: str, new: str) -> Change:
    """The schema with a mistake in it, as other.toml."""
    assert old in SMALL
    return lambda folder: (folder / "other.toml").write_text(SMALL.replace(old, new, 1))


def plan(old: str, new: str) -> Change:
    """A plan for a changed schema."""

    def apply(folder: Path) -> None:
        fw.plan(fw.Schema.parse(SMALL.replace(old, new, 1))).save(folder / "plan.json", force=True)

    return apply


def project(content: str) -> Change:
    return lambda folder: (folder / "fedwise.toml").write_text(content)


HEAD = "AGE,JOB,SEX,INCOME"
PLAN = ("plan", "other.toml", "-o", "new.json")
NO_NULL = "declare its codes for missing values in the schema"
#: What was done wrong, the command, the cause that is named, and the cure.
MISTAKES: dict[str, tuple[Change | None, tuple[str, ...], str, str]] = {
    "a code for missing values": (
        rows(HEAD, "N,farm,1,5", "20,farm,1,5"),
        RELEASE,
        "column 'AGE' must hold numbers",
        NO_NULL,
    ),
    "a question mark": (
        rows(HEAD, "20,farm,?,5", "20,farm,1,5"),
        RELEASE,
        "column 'SEX' must hold numbers",
        NO_NULL,
    ),
    "decimal commas": (
        rows(HEAD.replace(",", ";"), "20,5;farm;1;5", "30,5;farm;1;5"),
        RELEASE,
        "decimal commas",
        'decimal = ","',
    ),
    "a limit with a sign": (
        None,
        ("select", "releases", "-k", "2", "--maximise", "auc", "--subject-to", "eod<=0.1"),
        "must look like eod=0.1,auc=0.8, got 'eod<=0.1'",
        "write = alone",
    ),
    "a number code outside": (
        rows(HEAD, "20,farm,-9,5", "20,farm,1,5"),
        RELEASE,
        "'SEX' holds a value outside",
        "clean the data",
    ),
    "a gap": (
        rows(HEAD, ",farm,1,5", "20,farm,1,5"),
        RELEASE,
        "column 'AGE' holds a missing value",
        'missing = "other"',
    ),
    "a header with blanks": (
        text("people.csv", "SEX", " SEX "),
        RELEASE,
        "which has ' SEX '",
        "rename that column",
    ),
    "a header in small letters": (
        text("people.csv", "SEX", "sex"),
        RELEASE,
        "which has 'sex'",
        'source = ["sex"]',
    ),
    "a header with a mark": (
        text("people.csv", "INCOME", "INCOME."),
        RELEASE,
        "which has 'INCOME.'",
        "rename",
    ),
    "no such column": (
        text("people.csv", "SEX", "KIND"),
        RELEASE,
        "column 'SEX' is missing",
        "name its source",
    ),
    "only a header": (rows(HEAD), RELEASE, "at least one row", "check the file"),
    "an empty file": (lambda f: (f / "people.csv").write_text(""), RELEASE, "is empty", "header line"),
    "a filter nobody meets": (
        plan('name = "small"', 'name = "small"\nwhere = ["AGE > 500"]'),
        RELEASE,
        "got none",
        "'where'",
    ),
    "a spreadsheet": (
        None,
        ("release", "plan.json", "people.xlsx", "-c", "CA"),
        "does not exist",
        "check the path",
    ),
    "a spreadsheet that is there": (
        lambda f: (f / "people.xlsx").write_text("PK"),
        ("release", "plan.json", "people.xlsx", "-c", "CA"),
        "must end in .parquet, .csv or .tsv",
        "convert it",
    ),
    "two columns of one name": (
        text("people.csv", "JOB", "AGE"),
        RELEASE,
        "column 'AGE' appears twice",
        "rename or drop one",
    ),
    "swapped files": (
        None,
        ("release", "people.csv", "plan.json", "-c", "CA"),
        "the plan comes first",
        "swap them",
    ),
    "data as a plan": (
        None,
        ("release", "people.csv", "people.csv", "-c", "CA"),
        "is a data file and no plan",
        "put the plan first",
    ),
    "data as a ledger": (
        None,
        ("budget", "people.csv"),
        "has the name of a data file",
        "'people.csv.ledger.db'",
    ),
    "no client": (
        None,
        ("release", "plan.json", "people.csv"),
        "client must be named",
        "--client NAME, or --by COLUMN",
    ),
    "no data": (
        None,
        ("release", "plan.json"),
        "a plan and a data file must be named",
        "plan.json people.csv",
    ),
    "client and --by": (None, (*RELEASE, "--by", "JOB"), "clients are named by --by", "leave out --client"),
    "--by simulated": (
        None,
        (*RELEASE[:3], "--by", "JOB", "--simulated", "--seed", "0"),
        "--simulated must not be given with --by",
        "one client at a time",
    ),
    "--by nothing": (None, (*RELEASE[:3], "--by", "JOBS"), "column 'JOBS' is missing", "did you mean 'JOB'?"),
    "another part": (None, (*RELEASE, "--part", "test"), "--part must be all or train", "got 'test'"),
    "a release of no type": (None, (*RELEASE, "-o", "CA.txt"), "must end in .json", "choose another name"),
    "a role that is none": (
        schema('role = "target"', 'role = "label"'),
        PLAN,
        "'label'",
        "feature, sensitive, target",
    ),
    "a single =": (schema("INCOME > 50000", "INCOME = 1"), PLAN, "a single =", "COLUMN == VALUE"),
    "a rule of nonsense": (
        schema("INCOME > 50000", "INCOME >"),
        PLAN,
        "is not a comparison",
        "write it as COLUMN > NUMBER",
    ),
    "bins out of order": (schema("[0, 18, 40", "[0, 40, 18"), PLAN, "in increasing order", "'AGE'"),
    "a level twice": (schema('"farm", "shop"', '"farm", "farm"'), PLAN, "each level once", "'JOB'"),
    "a level as null": (
        schema("levels = [1, 2]", 'levels = [1, 2]\nnull = ["2"]'),
        PLAN,
        "as a level and as null",
        "drop one",
    ),
    "an unknown key": (
        schema("levels = [1, 2]", "levels = [1, 2]\nvalues = [1]"),
        PLAN,
        "unknown field",
        "values",
    ),
    "no target": (
        schema('role = "target"', 'role = "feature"'),
        PLAN,
        "at least one column",
        'role = "target"',
    ),
    "a schema by a wrong name": (
        None,
        ("plan", "incom"),
        "neither a file nor a shipped schema",
        "did you mean 'income'?",
    ),
    "an epsilon of text": (
        None,
        ("plan", "schema.toml", "-e", "one"),
        "--epsilon must be a number",
        "got 'one'",
    ),
    "a plan of no type": (
        None,
        ("plan", "schema.toml", "-o", "plan.txt"),
        "must end in .json",
        "choose another name",
    ),
    "a draft of no type": (
        None,
        ("plan", "--init", "people.csv", "-o", "s.json"),
        "must end in .toml",
        "choose another name",
    ),
    "a sample without a file": (
        None,
        ("plan", "schema.toml", "--public-sample"),
        "--public-sample needs --init",
        "FILE",
    ),
    "no size": (None, ("select", "releases"), "k (--size) must be given", "such as 5"),
    "a size too large": (None, ("select", "releases", "-k", "9"), "k must be between 1 and", "got 9"),
    "limits without a goal": (
        None,
        ("select", "releases", "-k", "2", "--subject-to", "eod=0.1"),
        "--subject-to needs",
        "--maximise METRIC",
    ),
    "a selection of no type": (
        None,
        ("select", "releases", "-k", "2", "-o", "s.txt"),
        "must end in .json",
        "choose another name",
    ),
    "a file to train on": (
        None,
        ("train", "--data", "people.csv", "--schema", "schema.toml", "-o", "run"),
        "is one file",
        "--by",
    ),
    "an unknown key of the project": (
        project('releses = "r"'),
        ("inspect", "plan.json"),
        "no key 'releses'",
        "did you mean 'releases'?",
    ),
    "a wrong type in the project": (
        project('size = "x"\nseed = "y"'),
        ("inspect", "plan.json"),
        "seed must be a whole number",
        "got str",
    ),
}


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pool")
    asked = fw.plan(fw.Schema.parse(SMALL), 3.0)
    for i, client in enumerate(("CA", "NY", "TX")):
        made = fw.release(asked, make_people(300, seed=i), client=client, simulated=True, seed=i)
        made.save(folder / f"{client}.release.json")
    return folder


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_costs_one_sentence(name: str, run: Run, ready: Path, pool: Path) -> None:
    change, words, cause, cure = MISTAKES[name]
    (ready / "releases").mkdir()
    for path in pool.iterdir():
        (ready / "releases" / path.name).write_bytes(path.read_bytes())
    if change is not None:
        change(ready)
    before = snapshot(ready)
    outcome = run(*words)
    assert outcome.code == 2, (outcome.out, outcome.err)
    assert outcome.out == ""
    assert outcome.err.startswith("error: ")
    assert len(outcome.err.strip().splitlines()) == 1
    assert cause in outcome.err
    assert cure in outcome.err
    assert snapshot(ready) == before  # no file, so no ledger and no charge


def test_there_are_forty() -> None:
    assert len(MISTAKES) >= 40
