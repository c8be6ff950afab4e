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
    assert run("select", releases, "-k", "2", "--no-rehearsal", "-o", "selection.json").code == 0
    told = run("rehearse", releases, "--federation", "selection.json", "--json", *QUICK)
    chosen = fw.Selection.load(releases.parent / "selection.json").clients
    assert tuple(told.json["performances"][0]["clients"]) == chosen  # type: ignore[index]
    assert told.json["label"] == "simulated"


def test_public_rows_judge(run: Run, releases: Path) -> None:
    public = releases.parent / "public.parquet"
    make_people(300, seed=9).write_parquet(public)
    words = ("rehearse", releases, "--federation", "CA,NY", "--json", *QUICK)
    told, everybody = run(*words, "--target", str(public)), run(*words)
    assert told.code == 0, told.err
    assert told.json["performances"][0]["values"] != everybody.json["performances"][0]["values"]  # type: ignore[index]
    check_refused(run(*words, "--target", "none.parquet"), "none.parquet")


def test_mistakes(run: Run, releases: Path) -> None:
    check_refused(run("rehearse", releases, "--federation", "CB", *QUICK), "no client 'CB'")
    check_refused(run("rehearse", releases, "--federation", "none.json", *QUICK), "none.json")
    check_refused(run("rehearse", releases, "--federation", "CA", "--target", "XX", *QUICK), "no client 'XX'")


def test_a_run_directory_goes_on(run: Run, releases: Path) -> None:
    words = ("rehearse", releases, "--federation", "CA,NY", "-o", "run", *QUICK)
    first = run(*words)
    assert first.code == 0, first.err
    kept = (releases.parent / "run" / "trainings.jsonl").read_bytes()
    assert run(*words).out == first.out
    assert (releases.parent / "run" / "trainings.jsonl").read_bytes() == kept
    shown = run("report", "run", "-o", "rehearsed.html")
    assert shown.code == 0, shown.err
    assert "given, not searched" in (releases.parent / "rehearsed.html").read_text()
    check_refused(
        run("rehearse", releases, "--federation", "CA,TX", "-o", "run", *QUICK),
        "was begun with other settings",
    )


def test_a_stop_says_how_to_go_on(run: Run, releases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedwise.rehearsal.workflow.rehearse", stopped)
    words = ("rehearse", releases, "--federation", "CA,NY", *QUICK)
    for more, said in (
        (("-o", "run"), "stopped; the same command goes on"),
        ((), "stopped; with -o DIR it could"),
    ):
        told = run(*words, *more)
        assert told.code == 130
        assert said in told.err


@pytest.mark.rehearses
def test_select_rehearses_its_choice_and_chooses_by_rehearsal(run: Run, releases: Path) -> None:
    settings = releases.parent / "settings.toml"
    fw.Training(rounds=1, model="logistic", lr=0.05, batch=200).save(settings)
    plain = run("select", releases, "-k", "2", "--json").json
    assert plain["rehearsal"]["random"] == 5  # type: ignore[index]
    assert plain["rehearsal"]["metrics"][0]["everyone"] > 0.5  # type: ignore[index]
    assert run("select", releases, "-k", "2", "--no-rehearsal", "--json").json["rehearsal"] is None
    words = ("select", releases, "-k", "2", "--rehearse", "auc", "--settings", settings, "--trials", "40")
    found = run(*words, "--subject-to", "eod:SEX=random", "--json").json
    assert found["objective"] == "rehearsal"
    assert found["rehearsal"]["goal"] == "auc, eod:SEX ≤ random"  # type: ignore[index]
    check_refused(run(*words, "--subject-to", "auc=0.999"), "the nearest miss is", code=4)
    folder = releases.parent / "choice"
    first, again = (run(*words, "--run", folder, "--json").json for _ in range(2))
    assert first["clients"] == again["clients"] == list(fw.Selection.load(folder / "selection.json").clients)
    check_refused(run("select", releases, "-k", "2", "--trials", "40"), "--trials must come with --rehearse")
    check_refused(run(*words, "--maximise", "auc"), "one of --maximise and --rehearse")
    check_refused(
        run("select", releases, "-k", "2", "--maximise", "auc", "--subject-to", "eod=random"), "--rehearse"
    )


def test_tune_and_train_with_its_settings(run: Run, releases: Path) -> None:
    small = ("--trials", "2", "--stages", "1", "--records", "60", "--models", "logistic", "--batch", "64")
    told = run(
        "tune", releases, "--federation", "CA,NY", "--rounds", "1", "--epochs", "1", "-o", "tuning", *small
    )
    assert told.code == 0, told.err
    assert "best of 2 settings (auc)" in told.out
    best = releases.parent / "tuning" / "best.toml"
    found = run("rehearse", releases, "--federation", "CA", "--settings", best, "--json", *QUICK[2:])
    assert found.json["settings"]["lr"] == fw.Training.load(best).lr  # type: ignore[index]
    assert found.json["settings"]["rounds"] == 1  # type: ignore[index]
    check_refused(run("tune", releases, "--federation", "CA", "--lr", "small"), "--lr must be numbers")
    check_refused(run("tune", releases), "federations must be named")


def test_a_flower_app_is_rehearsed(run: Run, releases: Path) -> None:
    app = Path(__file__).parents[1] / "flower" / "tabular_app"
    words = ("rehearse", releases, "--federation", "CA,NY", "--records", "80", "--app", app)
    told = run(*words, "--app-config", "num-server-rounds=1", "--json")
    assert told.code == 0, told.err
    assert {row[2] for row in told.json["metrics"]} == {"train_loss", "eval_loss", "eval_acc"}  # type: ignore[attr-defined]
    check_refused(run(*words[:-1], releases), "must be a directory with a pyproject.toml")
