"""plan, release, inspect, budget: what people type. Their mistakes are in test_release_mistakes.py."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import fedwise as fw
from cli.cli_kit import RELEASE, Run, check_refused, snapshot
from conftest import SMALL


def test_plan_release_inspect_budget(run: Run, ready: Path) -> None:
    made = run("plan", "schema.toml", "--epsilon", "0.5", "-o", "half.json")
    assert made.code == 0
    assert "written to half.json; next: fedwise release half.json" in made.err
    assert "(0.5, 1e-05)-differential privacy" in made.out.replace("\n", " ").replace("  ", " ")
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
    assert told.err == ""
    assert "spent epsilon 0.5 of 1" in told.out

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
    assert "CA" in shown.out
    assert "ok" in shown.out
    assert shown.err == ""


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


def test_plan_prints_its_tables_and_shipped_schemas_have_names(run: Run) -> None:
    outcome = run("plan", "income", "--json")
    assert len(outcome.json["tables"]) == 55  # type: ignore[arg-type]
    outcome = run("plan", "income", "--calibration", "rdp", "--allocation", "uniform")
    assert outcome.err == ""
    assert "36.34" in outcome.out
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
    assert "NO PRIVACY" in run("plan", "schema.toml", "--epsilon", "inf", "-o", "open.json").out
    before = snapshot(ready)
    (ready / "people.csv").rename(ready / "away.csv")
    check_refused(run("release", "open.json", "people.csv", "-c", "CA"), "--no-privacy")  # no row was read
    (ready / "away.csv").rename(ready / "people.csv")
    assert snapshot(ready) == before
    outcome = run("release", "open.json", "people.csv", "-c", "CA", "--no-privacy")
    assert outcome.code == 0
    assert "6 exact tables" in outcome.out
    assert "not private" in outcome.err
    words = ("release", "open.json", "people.csv", "-c", "NY", "--no-privacy", "-o", "ny/NY.release.json")
    assert run(*words, "--json").json["label"] == "not private"
    assert fw.Release.load(ready / "CA.release.json").label == "not private"
    assert "NO PRIVACY" in outcome.out
    assert "NO PRIVACY" in run("inspect", "CA.release.json").out
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
    assert "SIMULATED" in run("inspect", "CA.release.json").out
    assert not (ready / "people.csv.ledger.db").exists()


def test_force_overwrites(run: Run, ready: Path) -> None:
    (ready / "CA.release.json").write_text("old")
    assert run(*RELEASE, "--force").code == 0
    assert fw.Release.load(ready / "CA.release.json").client == "CA"
    assert run("plan", "schema.toml", "-o", "plan.json", "--force").code == 0


def test_over_budget_exits_3_with_the_sums(run: Run, ready: Path) -> None:
    assert run(*RELEASE).code == 0
    fw.plan(fw.Schema.parse(SMALL), 1.5).save(ready / "more.json")
    another = ("release", "more.json", "people.csv", "-c", "CA", "-o", "again.json")
    before = snapshot(ready)
    outcome = run(*another)
    assert outcome.code == 3
    assert outcome.out == ""
    assert "Traceback" not in outcome.err
    for word in ("Requested:", "Remaining:", "Difference:"):
        assert word in outcome.err
    assert snapshot(ready) == before
    assert run("budget", "people.csv.ledger.db", "--set-epsilon", "4").code == 0
    assert run(*another).code == 0


def test_the_same_plan_gets_the_same_release_and_is_charged_once(run: Run, ready: Path) -> None:
    first = run(*RELEASE, "--json")
    assert first.json["repeated"] is False
    again = run(*RELEASE, "-o", "again.json")
    assert again.code == 0
    assert "answered before; the same release is handed over, nothing is charged" in again.out
    assert (ready / "again.json").read_bytes() == (ready / "CA.release.json").read_bytes()
    # --force is about the file that is written, not about the noise.
    forced = run(*RELEASE, "--force", "--json")
    assert forced.json["repeated"] is True
    assert (ready / "CA.release.json").read_bytes() == (ready / "again.json").read_bytes()
    assert len(fw.Ledger(ready / "people.csv.ledger.db").history()) == 1
    # Another client or another plan is another release.
    assert run("budget", "people.csv.ledger.db", "--set-epsilon", "4").code == 0
    assert run(*RELEASE[:3], "--client", "NY").code == 0
    assert len(fw.Ledger(ready / "people.csv.ledger.db").history()) == 2


def test_a_largest_epsilon(run: Run, ready: Path) -> None:
    (ready / "people.csv").rename(ready / "away.csv")  # no row is read for a refusal
    before = snapshot(ready)
    check_refused(run(*RELEASE, "--max-epsilon", "0.5"), "epsilon 0.5 at most (--max-epsilon), got 1", code=3)
    fw.plan(fw.Schema.parse(SMALL), float("inf")).save(ready / "open.json")
    check_refused(
        run("release", "open.json", "people.csv", "-c", "CA", "--no-privacy", "--max-epsilon", "100"),
        "got inf",
        code=3,
    )
    for nonsense in ("0", "nan", "-1"):
        check_refused(run(*RELEASE, f"--max-epsilon={nonsense}"), "max_epsilon must be above 0")
    (ready / "open.json").unlink()
    assert snapshot(ready) == before
    (ready / "away.csv").rename(ready / "people.csv")
    check_refused(run(*RELEASE, "--max-delta", "1e-6"), "delta 1e-06 at most (--max-delta)", code=3)
    assert run(*RELEASE, "--max-epsilon", "1", "--max-delta", "1e-5").code == 0


def test_an_overstated_charge_neither_empties_nor_damages_a_ledger(run: Run, ready: Path) -> None:
    assert run(*RELEASE, "--budget", "5").code == 0
    before = snapshot(ready)
    for mu in (500.0, 1e7):
        hostile = msgspec.structs.replace(fw.plan(fw.Schema.parse(SMALL), 0.1), charge_mu=mu, digest="")
        text = msgspec.structs.replace(hostile, digest=hostile.compute_digest()).encode()
        (ready / "hostile.json").write_bytes(text)
        words = ("release", "hostile.json", "people.csv", "-c", "CA", "-o", "x.json")
        check_refused(run(*words), "charges more than its noise costs")
        (ready / "hostile.json").unlink()
        assert snapshot(ready) == before
    assert fw.Ledger(ready / "people.csv.ledger.db").balance().remaining > 3


def test_inspect_exits_1_on_a_doctored_release(run: Run, ready: Path) -> None:
    plan = fw.Plan.load(ready / "plan.json")
    made = fw.release(plan, ready / "people.csv", client="CA", uncharged=True)
    tables = list(made.tables)
    tables[0] = msgspec.structs.replace(tables[0], counts=[c + 2000 for c in tables[0].counts])
    (ready / "r").mkdir()
    msgspec.structs.replace(made, tables=tuple(tables)).save(ready / "r" / "CA.release.json")
    fw.release(plan, ready / "people.csv", client="NY", uncharged=True).save(ready / "r" / "NY.release.json")
    outcome = run("inspect", "r", "--json")
    assert outcome.code == 1
    assert outcome.json["flagged"] == ["CA"]
    assert outcome.json["label"] == "not charged"
    told = run("inspect", "r")
    assert told.code == 1
    assert "NOT CHARGED" in told.out
    assert "contradict" in told.out
