"""fedwise inspect --quality and select --exclude-suspect, on a pool with one spoilt client."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import fedwise as fw
from cli.cli_kit import Run, check_refused
from conftest import SMALL, make_people
from fedwise.estimation import estimate
from fedwise.search.constraints import Constraints

SPOILT = "c03"


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("releases")
    plan = fw.plan(fw.Schema.parse(SMALL), 5.0)
    for i in range(12):
        rows = make_people(6000, seed=i)
        if f"c{i:02}" == SPOILT:
            rows = rows.with_columns(pl.col("INCOME").shuffle(seed=1))
        made = fw.release(plan, rows, client=f"c{i:02}", simulated=True, seed=0)
        made.save(folder / f"c{i:02}.release.json")
    return folder


def test_inspect_shows_cards(run: Run, pool: Path) -> None:
    plain = run("inspect", pool, "--json").json
    assert "quality" not in plain
    outcome = run("inspect", pool, "--quality", "--json")
    assert outcome.code == 0
    found = outcome.json["quality"]
    assert found["suspects"] == [SPOILT]  # type: ignore[index]
    card = next(one for one in found["cards"] if one["client"] == SPOILT)  # type: ignore[index]
    assert card["suspect"] is True
    label = next(one for one in card["entries"] if one["kind"] == "label_noise")
    assert label["value"] == pytest.approx(1.0, abs=0.1)
    assert label["stated"] == "30% random labels"
    assert {"error", "z", "p", "power"} <= label.keys()
    shown = run("inspect", pool, "--quality")
    assert shown.code == 0
    assert "quality: 1 suspect(s)" in shown.out
    assert "of the labels look random" in " ".join(shown.out.split())


def test_suspects_stay_out_when_asked(run: Run, pool: Path) -> None:
    words = ("select", pool, "-k", "11", "--json")
    kept = run(*words, "--exclude", "c00").json
    assert SPOILT in kept["clients"]  # type: ignore[operator]
    asked = run(*words, "--exclude-suspect").json
    assert SPOILT not in asked["clients"]  # type: ignore[operator]
    assert asked["constraints"] == {"exclude": [SPOILT], "exclude_suspect": True}
    refused = run("select", pool, "-k", "3", "--include", SPOILT, "--exclude-suspect")
    check_refused(refused, f"client '{SPOILT}' must be included but is a suspect", code=4)


def test_excluding_suspects_needs_the_pool(pool: Path) -> None:
    releases = fw.Pool.load(pool)
    with pytest.raises(fw.FedwiseError, match="exclude_suspect needs the pool"):
        fw.select(estimate(releases), 3, constraints=Constraints(exclude_suspect=True))
    chosen = fw.select(releases, 11, exclude_suspect=True)
    assert SPOILT not in chosen.clients
    assert Constraints().given() == {}
    assert not Constraints().any
    rules = Constraints(exclude_suspect=True)
    curve = fw.frontier(releases, (11, 11), constraints=rules, pareto_points=2)
    assert all(SPOILT not in point.clients for point in curve.pareto)
    assert all(SPOILT not in point.clients for point in curve.points)
