"""Doubles of joint tables: they keep how groups differ at each level of a feature, where pairs cannot."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import fedwise as fw
from fedwise.doubling.drawer import Drawer
from fedwise.doubling.joint import Space
from fedwise.doubling.population import population
from fedwise.estimation import estimate
from fedwise.estimation.fission import split_noise
from fedwise.planning import Plan
from fedwise.pool.pool import Pool

SCHEMA = fw.Schema(
    name="interaction",
    columns=(
        fw.Column("married", fw.Role.FEATURE, levels=(0, 1)),
        fw.Column("age", fw.Role.FEATURE, levels=(0, 1, 2)),
        fw.Column("sex", fw.Role.SENSITIVE, levels=(0, 1)),
        fw.Column("label", fw.Role.TARGET, levels=(0, 1)),
    ),
)
#: Chance of the positive class by sex and marriage: marriage raises it for one sex and lowers it for the other.
CHANCE = np.array([[0.6, 0.2], [0.3, 0.8]])
CLIENTS = ("A", "B", "C", "D")


def rows(client: int, number: int = 6_000) -> pl.DataFrame:
    rng = np.random.default_rng([client, 5])
    sex, married = rng.integers(0, 2, number), (rng.random(number) < 0.3 + 0.1 * client).astype(int)
    label = (rng.random(number) < CHANCE[sex, married]).astype(int)
    age = np.minimum(2, married + rng.integers(0, 2, number))
    return pl.DataFrame({"married": married, "age": age, "sex": sex, "label": label})


def pool(epsilon: float, *, joint: bool) -> Pool:
    plan = fw.plan(SCHEMA, epsilon, joint=joint)
    return Pool.of(
        fw.release(
            plan, rows(i), client=name, simulated=plan.private, seed=3 if plan.private else None,
            no_privacy=not plan.private,
        )
        for i, name in enumerate(CLIENTS)
    )  # fmt: skip


def interaction(frame: pl.DataFrame) -> float:
    """Log-odds ratio of label and marriage of one sex, less that of the other: log(16/6·…) ≈ −4 in the rows."""
    odds = []
    for sex in (0, 1):
        of = frame.filter(pl.col("sex") == sex)
        rate = [of.filter(pl.col("married") == m)["label"].mean() for m in (0, 1)]
        odds.append(math.log(rate[1] / (1 - rate[1])) - math.log(rate[0] / (1 - rate[0])))
    return odds[0] - odds[1]


TRUE = math.log(0.2 / 0.8) - math.log(0.6 / 0.4) - math.log(0.8 / 0.2) + math.log(0.3 / 0.7)


def test_pairs_cannot_hold_the_interaction_and_joint_tables_do() -> None:
    exact = {joint: fw.doubles(pool(math.inf, joint=joint), seed=0) for joint in (False, True)}
    assert abs(interaction(exact[False]["A"])) < 0.5
    assert interaction(exact[True]["A"]) == pytest.approx(TRUE, abs=0.3)


def test_with_noise_too() -> None:
    made = fw.doubles(pool(1.0, joint=True), seed=0)
    for name in CLIENTS:
        assert interaction(made[name]) == pytest.approx(TRUE, abs=0.5)


def test_a_pool_of_joint_tables_reads_as_one_of_pairs() -> None:
    exact = {joint: pool(math.inf, joint=joint) for joint in (False, True)}
    np.testing.assert_array_equal(exact[True].matrix, exact[False].matrix)
    assert exact[True].plan.layout == exact[False].plan.layout
    assert exact[True].plan.schema == SCHEMA
    assert exact[True].plan.digest != exact[False].plan.digest
    chosen = [fw.select(found, k=2, seed=0).clients for found in exact.values()]
    assert chosen[0] == chosen[1]
    assert len(exact[True].asked.tables) == 4
    assert f"{len(exact[True].asked.tables)} tables" in pool(1.0, joint=True).asked.promise
    kept = exact[True].without(["B"])
    assert kept.asked == exact[True].asked
    assert kept.joint is not None
    np.testing.assert_array_equal(kept.joint.counts, exact[True].joint.counts[[0, 2, 3]])


def test_chances_know_the_group() -> None:
    drawer = Drawer(estimate(pool(math.inf, joint=True)), seed=0)
    people = population(drawer, [0, 1, 2, 3], 8_000, seed=1)
    for sex in (0, 1):
        for married in (0, 1):
            at = (people.codes[:, 2] == sex) & (people.codes[:, 0] == married)
            assert people.chances[at, 1].mean() == pytest.approx(CHANCE[sex, married], abs=0.03)


def test_halves_of_the_noise_are_independent_in_pairs_and_joint_tables_alike() -> None:
    found = estimate(pool(1.0, joint=True))
    first, second = split_noise(found, np.random.default_rng(0))
    for half in (first, second):
        np.testing.assert_allclose(half.released, half.joint.pairs[0])
        np.testing.assert_allclose(half.joint.sigmas, found.joint.sigmas * math.sqrt(2))
    np.testing.assert_allclose((first.released + second.released) / 2, found.released)


def test_records_pass_through_the_model_unchanged() -> None:
    folding = fw.plan(SCHEMA, joint=True).folding
    space = Space(folding)
    codes = SCHEMA.encode(rows(0, 50)).T
    np.testing.assert_array_equal(space.parted(space.joined(codes)), codes)


def test_joint_releases_rehearse_and_train_in_one_directory(tmp_path: Path) -> None:
    releases, settings = pool(1.0, joint=True), fw.Training(rounds=2, lr=1e-2)
    found = fw.rehearse(
        releases, [("A", "B")], settings, stages=2, random=0, records=500, output=tmp_path / "run"
    )
    assert 0.5 < np.mean(found.performances[0].values["auc"]) <= 1.0
    kept = Plan.load(tmp_path / "run" / "plan.json")
    assert kept == releases.asked
    frames = {name: rows(i, 300) for i, name in enumerate(CLIENTS)}
    run = fw.train(
        frames, None, fw.select(releases, k=2, seed=0), settings, output=tmp_path / "trained", plan=kept
    )
    assert run.path.exists()
    fw.report(run.path, output=tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "4 pairs and larger sets of 4 public columns" in page
