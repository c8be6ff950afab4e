"""Audits of several budgets, as the command makes them."""

import json
import sys
from pathlib import Path

import msgspec
import pytest
import typer
from typer.testing import CliRunner

import fedwise as fw
from conftest import make_people
from fedwise.auditing.budgets import Audits, audit_budgets
from fedwise.cli.audit import audit
from fedwise.errors import CheckFailed, FedwiseError, PlanError
from fedwise.owner.noise import add_noise

pytestmark = pytest.mark.slow

#: An honest release fails by chance with probability 1e-8 at most.
SURE = 1 - 1e-8
APP = typer.Typer()
APP.command()(audit)


def test_every_budget_meets_every_attack(small_schema: fw.Schema, tmp_path: Path) -> None:
    seen: list[tuple[int, int, float]] = []
    found = audit_budgets(
        small_schema,
        make_people(200, 0),
        [0.5, 2.0],
        trials=200,
        confidence=SURE,
        progress=lambda *now: seen.append(now),
    )
    assert [(a.epsilon, a.attack) for a in found.audits] == [
        (0.5, "single"), (0.5, "joint"), (0.5, "release"), (2.0, "single"), (2.0, "joint"), (2.0, "release"),
    ]  # fmt: skip
    assert found.ok
    assert [now[:2] for now in seen] == [(3, 6), (6, 6)]
    assert seen[-1][2] == max(a.auc for a in found.audits)
    found.save(tmp_path / "audit.json")
    assert msgspec.json.decode((tmp_path / "audit.json").read_bytes(), type=Audits) == found
    with pytest.raises(FedwiseError, match="exists"):
        found.save(tmp_path / "audit.json")


def test_one_broken_promise_is_enough() -> None:
    class Outcome(msgspec.Struct):
        ok: bool

    for verdicts in ([True, True], [True, False]):
        assert Audits("tight", "weighted", [Outcome(ok) for ok in verdicts]).ok is all(verdicts)  # type: ignore[misc]


def test_the_command_prints_what_the_library_found(
    small_schema: fw.Schema, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_people(150, 1).write_csv(tmp_path / "rows.csv")
    small_schema.save(tmp_path / "schema.toml")
    words = [str(tmp_path / "schema.toml"), str(tmp_path / "rows.csv"), "--epsilon", "1", "--trials", "200"]
    words += ["--confidence", "0.99999999"]
    result = CliRunner().invoke(
        APP, [*words, "-o", str(tmp_path / "a.json"), "--json"], catch_exceptions=False
    )
    answer = json.loads(result.stdout)
    assert list(answer) == ["calibration", "allocation", "audits"]
    assert [a["attack"] for a in answer["audits"]] == ["single", "joint", "release"]
    assert {
        "mu_promised",
        "mu_lower_bound",
        "epsilon_of_mu",
        "smallest_detectable",
        "modes",
        "checks",
    } <= set(answer["audits"][2])
    assert json.loads((tmp_path / "a.json").read_bytes()) == answer
    shown = CliRunner().invoke(APP, words, catch_exceptions=False).output
    assert "holds" in shown
    assert "200 releases at each budget, 5 canaries" in shown
    quick = CliRunner().invoke(APP, [*words, "--runs", "0"], catch_exceptions=False).output
    assert "releases at each budget" not in quick
    with pytest.raises(PlanError, match="--epsilon must be numbers separated by commas, got 'one'"):
        CliRunner().invoke(APP, [*words[:2], "--epsilon", "one"], catch_exceptions=False)
    monkeypatch.setattr(Audits, "ok", False)
    with pytest.raises(CheckFailed, match="the attack beats the promise"):
        CliRunner().invoke(APP, [*words, "--runs", "0"], catch_exceptions=False)


def test_the_command_says_what_is_broken(
    small_schema: fw.Schema, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_people(150, 1).write_csv(tmp_path / "rows.csv")
    small_schema.save(tmp_path / "schema.toml")
    monkeypatch.setattr(
        sys.modules["fedwise.owner.release"],
        "add_noise",
        lambda tables, sigmas: add_noise(tables, sigmas / 2),
    )
    words = [str(tmp_path / "schema.toml"), str(tmp_path / "rows.csv"), "--epsilon", "1", "--trials", "200"]
    result = CliRunner().invoke(APP, words)
    assert isinstance(result.exception, CheckFailed)
    assert "noise: BROKEN: the noise is smaller than planned" in " ".join(result.output.split())


def test_too_few_runs_are_refused_before_anything_runs(small_schema: fw.Schema) -> None:
    with pytest.raises(FedwiseError, match="runs must be 0 or at least 100, got 40"):
        audit_budgets(small_schema, make_people(200, 0), [1.0], runs=40)
