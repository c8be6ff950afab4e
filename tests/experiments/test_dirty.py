"""Dirty pools: kinds do what they say, what is left out is what the search leaves out, contrasts by hand."""

from __future__ import annotations

from pathlib import Path

import dirt
import dirty_contrasts
import dirty_page
import numpy as np
import polars as pl
import pytest
from dirty_training import ROUNDS, Arena, Choice, K
from quality import pool_of
from spoilt import Case, World

from fedwise.data import synthetic
from fedwise.planning import plan
from fedwise.search.constraints import Constraints
from fedwise.search.seats import seat

SCHEMA = synthetic.schema()


@pytest.fixture(scope="module")
def world() -> World:
    codes = {name: SCHEMA.encode(rows) for name, rows in synthetic.states(seed=0, scale=0.05).items()}
    kept = dict(list(codes.items())[:16])
    return World(SCHEMA, {n: c[:, ::2] for n, c in kept.items()}, {n: c[:, 1::2] for n, c in kept.items()})


def _spoilt(world: World, kind: str, severity: str) -> tuple[np.ndarray, np.ndarray]:
    made = dirt.spoil(world.codes, ["CA"], SCHEMA, kind=kind, severity=severity, seed=0)  # type: ignore[arg-type]
    for name in world.clients:
        assert (made[name] is world.codes[name]) == (name != "CA")
    return world.codes["CA"], made["CA"]


def test_kinds_do_what_they_say(world: World) -> None:
    target, sex = SCHEMA.target, SCHEMA.sensitive[0]
    own, made = _spoilt(world, "flipped labels", "medium")
    assert np.mean(made[target] != own[target]) == pytest.approx(0.25, abs=0.03)
    own, made = _spoilt(world, "random labels", "heavy")
    assert np.mean(made[target] != own[target]) == pytest.approx(0.35, abs=0.03)
    own, made = _spoilt(world, "biased labels", "medium")
    women = own[sex] == 1
    assert (made[target][~women] == own[target][~women]).all()
    assert made[target][women].sum() == pytest.approx(0.4 * own[target][women].sum(), rel=0.2)
    own, made = _spoilt(world, "shuffled features", "heavy")
    for feature in SCHEMA.features:
        assert sorted(made[feature]) == sorted(own[feature])
    assert (made[target] == own[target]).all()
    own, made = _spoilt(world, "repeated rows", "heavy")
    assert made.shape == own.shape
    assert len(np.unique(made, axis=1).T) <= 50
    own, made = _spoilt(world, "swapped columns", "medium")
    changed = [v for v in range(len(own)) if not np.array_equal(own[v], made[v])]
    assert len(changed) == 4
    assert (made.max(axis=1) < np.array(SCHEMA.sizes)).all()
    own, made = _spoilt(world, "another's rows", "heavy")
    assert made.shape == own.shape
    assert not np.array_equal(own, made)
    _spoilt(world, "mixture", "light")


def test_who_is_left_out_is_who_the_search_leaves_out(world: World) -> None:
    case = Case.make(world, kind="random labels", severity="heavy", share=0.3, seed=1)
    assert len(case.dirty) == 5
    pool = pool_of(plan(SCHEMA, 20.0), case.world.exact, 0)
    choice = Choice.of(pool)
    rules, _ = seat(Constraints(exclude_suspect=True), pool, K)
    assert choice.left_out
    assert set(choice.left_out) == set(rules.exclude)
    assert len(choice.choose(exclude=choice.left_out)) == K


def test_clean_clients_train_better_models(world: World) -> None:
    case = Case.make(world, kind="flipped labels", severity="heavy", share=0.5, seed=1)
    arena = Arena.of(case, seed=0, mean_rows=300)
    clean = [client for client in world.clients if client not in case.dirty]
    good, bad = (arena.judge(arena.fit(members)) for members in (clean, case.dirty))
    assert good["auc"] > bad["auc"] + 0.02
    assert ROUNDS > 1
    assert arena.judge(arena.fit(clean, "fltrust"))["auc"] > 0.6


def test_contrasts_by_hand(tmp_path: Path) -> None:
    rows = []
    for seed, (own, other) in enumerate([(0.8, 0.7), (0.9, 0.7), (0.85, 0.75)]):
        cell = {
            "task": "income2018",
            "kind": "biased labels",
            "severity": "medium",
            "share": 0.3,
            "epsilon": 1.0,
        }
        for way, value in (
            ("chosen, quality", own),
            ("all", other),
            ("all, krum", 0.2),
            ("all, median", 0.5),
        ):
            rows.append({**cell, "seed": seed, "way": way, "auc": value})
    trained = pl.DataFrame(rows)
    found = dirty_contrasts.contrast(trained, "income2018", "all", "auc", larger=True)
    assert found.interval.value == pytest.approx(0.4 / 3)
    half = 4.302653 * np.std([0.1, 0.2, 0.1], ddof=1) / 3**0.5
    assert found.interval.low == pytest.approx(0.4 / 3 - half, abs=1e-6)
    assert found.verdict == "tie"
    assert dirty_contrasts.robust_best(trained, "auc", larger=True) == ("median", 0.5)
    assert dirty_contrasts.robust_best(trained, "auc", larger=False) == ("krum", pytest.approx(0.2))
    rule = dirty_contrasts.contrast(trained, "income2018", "robust", "auc", larger=True)
    assert (rule.other, rule.verdict) == ("all, median", "win")
    dirty_page.write(tmp_path)
    assert (tmp_path / "dirty.md").read_text().startswith("# Dirty pools")
