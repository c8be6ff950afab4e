"""The way of an owner and a coordinator through two stages, on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

import fedwise as fw
from conftest import SMALL, make_people
from fedwise.cli.main import app
from fedwise.errors import FedwiseError


def run(*words: object) -> str:
    found = CliRunner().invoke(app, [str(word) for word in words])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    assert found.exit_code == 0, found.output
    return found.stdout


def test_two_stages(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    plan, releases = tmp_path / "plan.json", tmp_path / "releases"
    run("plan", tmp_path / "small.toml", "--stages", "0.5,2", "-o", plan)
    assert [stage.epsilon for stage in fw.Plan.load(plan).staged] == [0.5, 2.0]
    for name in "abcd":
        make_people(1500, ord(name)).write_csv(tmp_path / f"{name}.csv")
        run(
            "release",
            plan,
            tmp_path / f"{name}.csv",
            "--client",
            name,
            "-o",
            releases / f"{name}.release.json",
        )
    listed = releases / "shortlist.json"
    run("shortlist", releases, "-k", 2, "--ask", 2, "--redraws", 10, "-o", listed)
    found = fw.Shortlist.load(listed)
    asked, other = found.clients[0], found.out[0]
    later = ["--stage", 2, "--shortlist", listed]
    said = run("release", plan, tmp_path / f"{asked}.csv", "--client", asked, *later, "--dry-run")
    assert "You are asked again. Stage 2 of 2: the total epsilon rises from 0.5 to 2." in said
    assert len(fw.Ledger(tmp_path / f"{asked}.csv.ledger.db").history()) == 1
    made = json.loads(
        run("release", plan, tmp_path / f"{asked}.csv", "--client", asked, *later, "--json",
            "-o", releases / f"{asked}.stage2.release.json")
    )  # fmt: skip
    assert (made["stage"], made["epsilon"]) == (2, 2.0)
    assert made["ledger"]["balance"]["charges"] == 2
    with pytest.raises(FedwiseError, match="must be on the shortlist to answer stage 2, and is not"):
        run("release", plan, tmp_path / f"{other}.csv", "--client", other, *later)
    with pytest.raises(FedwiseError, match="must come with the shortlist that asks for it"):
        run("release", plan, tmp_path / f"{asked}.csv", "--client", asked, "--stage", 2)
    assert fw.Pool.load(releases).epsilons.max() == 2.0


def test_one_holder_answers_both_stages_for_its_clients(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    plan, releases, file = tmp_path / "plan.json", tmp_path / "releases", tmp_path / "all.csv"
    run("plan", tmp_path / "small.toml", "--stages", "0.5,2", "-o", plan)
    pl.concat([make_people(1500, ord(name)).with_columns(AREA=pl.lit(name)) for name in "abcd"]).write_csv(
        file
    )
    run("release", plan, file, "--by", "AREA", "-o", releases)
    listed = releases / "shortlist.json"
    run("shortlist", releases, "-k", 2, "--ask", 2, "--redraws", 10, "-o", listed)
    asked = fw.Shortlist.load(listed).clients
    later = ["--by", "AREA", "--stage", 2, "--shortlist", listed, "-o", releases]
    with pytest.raises(FedwiseError, match="has no ledger"):
        run("release", plan, file, *later, "--ledger", tmp_path / "elsewhere")
    made = json.loads(run("release", plan, file, *later, "--epsilon", 1, "--json"))
    assert [
        (one["client"], one["stage"], one["epsilon"], one["asked_epsilon"]) for one in made["releases"]
    ] == [(name, 2, 1.0, 2.0) for name in asked]
    assert all((releases / f"{name}.stage2.release.json").exists() for name in asked)
    pool = fw.Pool.load(releases)
    assert dict(zip(pool.clients, pool.epsilons, strict=True)) == {
        name: 1.0 if name in asked else 0.5 for name in "abcd"
    }
    with pytest.raises(FedwiseError, match="must come with the shortlist that asks for it"):
        run("release", plan, file, "--by", "AREA", "--stage", 2, "-o", releases)


def test_a_stage_in_waves(tmp_path: Path) -> None:
    """Each wave is one shortlist command; it goes on from the shortlist kept beside the releases."""
    (tmp_path / "small.toml").write_text(SMALL)
    plan, releases, file = tmp_path / "plan.json", tmp_path / "releases", tmp_path / "all.csv"
    run("plan", tmp_path / "small.toml", "--stages", "0.5,2", "-o", plan)
    people = [make_people(1500, ord(name)).with_columns(AREA=pl.lit(name)) for name in "abcdef"]
    pl.concat(people).write_csv(file)
    run("release", plan, file, "--by", "AREA", "-o", releases)
    listed = releases / "shortlist.json"
    ask = ["shortlist", releases, "-k", 2, "--ask", 4, "--waves", 2, "--redraws", 10, "-o", listed]
    later = ["release", plan, file, "--by", "AREA", "--stage", 2, "--shortlist", listed, "-o", releases]
    assert "wave 1 of 2: 2 are asked now" in run(*ask)
    first = fw.Shortlist.load(listed)
    run(*later)
    assert "wave 2 of 2: 2 are asked now" in run(*ask)
    second = fw.Shortlist.load(listed)
    assert set(second.clients) == {*first.added, *second.added}
    assert len(second.clients) == 4
    run(*later)
    pool = fw.Pool.load(releases)
    spent = dict(zip(pool.clients, pool.epsilons.tolist(), strict=True))
    assert spent == {name: 2.0 if name in second.clients else 0.5 for name in "abcdef"}
    for ledger in (tmp_path / "all.csv.ledgers").glob("*.db"):
        assert len(fw.Ledger(ledger).history()) == (2 if ledger.stem.split(".")[0] in second.clients else 1)
    with pytest.raises(FedwiseError, match="exists; choose another name"):
        run(*ask)
    with pytest.raises(FedwiseError, match="must have a stage left to ask"):
        run(*ask, "--force")


def test_a_score_between_two_answers(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    plan, releases = tmp_path / "plan.json", tmp_path / "releases"
    said = run("plan", tmp_path / "small.toml", "--stages", "0.2,0.4,3", "--score", "-o", plan)
    assert "the second asks for one number, the sum of a score between -1 and 1" in " ".join(said.split())
    for name in "abcdef":
        make_people(1200, ord(name)).write_csv(tmp_path / f"{name}.csv")
        run("release", plan, tmp_path / f"{name}.csv", "-c", name, "-o", releases / f"{name}.release.json")
    listed, stages = releases / "shortlist.json", []
    for _ in range(3):
        run(
            "shortlist", releases, "-k", 2, "--ask", 3, "--waves", 2, "--redraws", 10, "-o", listed, "--force"
        )
        found = fw.Shortlist.load(listed)
        stages.append((found.stage, len(found.added)))
        for name in found.added:
            later = ["--stage", found.stage, "--shortlist", listed]
            data, target = tmp_path / f"{name}.csv", releases / f"{name}.stage{found.stage}.release.json"
            if found.scored is not None:
                asked = run("release", plan, data, "-c", name, *later, "--dry-run")
                assert "Asked is one number" in " ".join(asked.split())
            said = run("release", plan, data, "-c", name, *later, "-o", target)
            assert ("one noisy number, the sum of a score" in " ".join(said.split())) == (
                found.scored is not None
            )
            assert "one noisy number" not in said or "0.4" in said
    assert stages == [(3, 2), (2, 4), (3, 1)]
    pool = fw.Pool.load(releases)
    assert sorted(pool.epsilons.tolist()) == [0.4] * 3 + [3.0] * 3
    chosen = json.loads(run("select", releases, "-k", 2, "--json", "--no-rehearsal"))
    assert set(chosen["clients"]) <= {
        name for name, e in zip(pool.clients, pool.epsilons, strict=True) if e == 3.0
    }
    run("inspect", releases)
    run("inspect", next(releases.glob("*.stage2.release.json")))
