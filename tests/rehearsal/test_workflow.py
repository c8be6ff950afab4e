"""Rehearse: who trains, on what, what comes out, and what is refused."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import fedwise as fw
from conftest import make_people
from fedwise.rehearsal import stage
from fedwise.rehearsal.performance import Rehearsed
from fedwise.rehearsal.workflow import rehearse
from fedwise.training.federation import prepare
from fedwise.training.simulate import simulate

QUICK = fw.Training(rounds=6, lr=5e-3, model="logistic")


def spoilt(rows: int, seed: int) -> pl.DataFrame:
    """People whose income has nothing to do with them."""
    frame = make_people(rows, seed=seed)
    return frame.with_columns(INCOME=frame["INCOME"].sample(fraction=1.0, shuffle=True, seed=seed))


@pytest.fixture(scope="module")
def pool(small_schema) -> fw.Pool:
    """Four good clients and four whose labels are random."""
    plan = fw.plan(small_schema, epsilon=3.0)
    frames = {f"good{i}": make_people(1200, seed=i) for i in range(4)}
    frames |= {f"bad{i}": spoilt(1200, seed=i) for i in range(4)}
    return fw.Pool.of(
        fw.release(plan, frame, client=name, simulated=True, seed=i)
        for i, (name, frame) in enumerate(frames.items())
    )


@pytest.fixture(scope="module")
def found(pool) -> Rehearsed:
    return rehearse(
        pool, ["good0", "good1", "good2"], QUICK, random=6, alone=True, stages=3, judged=3_000, seed=4,
        target=[f"good{i}" for i in range(4)],
    )  # fmt: skip


def test_roles_and_metrics(found) -> None:
    assert [len(found.those(role)) for role in ("federation", "random", "all", "alone")] == [1, 6, 1, 3]
    assert found.federation.clients == ("good0", "good1", "good2")
    assert {"auc", "loss", "brier", "eod:SEX", "eod:SEX@rate", "balanced_accuracy@rate"} <= set(
        found.federation.values
    )
    assert found.label == "simulated"
    assert found.epsilon == 3.0
    curve = found.federation.curve
    assert curve["round"][0] == 0
    assert curve["round"][-1] == 6
    assert curve["auc"][-1] > curve["auc"][0]


def test_good_data_is_rehearsed_better_than_spoilt(found) -> None:
    comparison = found.comparison("auc")
    assert comparison.difference > 0.05
    assert comparison.beaten == 1.0


def test_the_level_is_that_of_the_real_training(found, small_schema) -> None:
    """AUC of the same model on real rows lies in the interval."""
    frames = {f"good{i}": make_people(1200, seed=i) for i in range(4)}
    prepared = prepare(frames, small_schema)
    real = simulate(prepared, found.federation.clients, QUICK.config()).value("auc")
    figure = found.federation.figure("auc")
    assert figure.low <= real <= figure.high


def test_equal_seeds_give_equal_rehearsals(pool) -> None:
    def once(seed: int) -> Rehearsed:
        return rehearse(
            pool, ["good0", "bad0"], QUICK, random=2, stages=2, records=200, judged=500, seed=seed
        )

    assert once(1) == once(1)
    assert once(1).value("auc") != once(2).value("auc")


def test_private_training_costs(pool) -> None:
    """DP-SGD at a small ε is rehearsed as such: its noise lowers the AUC."""
    common = {"random": 0, "everyone": False, "stages": 2, "records": 300, "judged": 1_000}
    plain = rehearse(pool, ["good0", "good1"], fw.Training(rounds=2, lr=0.05, model="logistic"), **common)
    private = rehearse(
        pool, ["good0", "good1"], fw.Training(rounds=2, lr=0.05, model="logistic", epsilon=0.1), **common
    )
    assert private.value("auc") < plain.value("auc")


def test_several_federations_and_progress(pool) -> None:
    seen: list[tuple[int, int, float]] = []
    result = rehearse(
        pool, [["good0"], ["good1", "bad1"]], QUICK, random=0, everyone=False, stages=2, records=100, judged=300,
        progress=lambda *state: seen.append(state),
    )  # fmt: skip
    assert [one.clients for one in result.performances] == [("good0",), ("good1", "bad1")]
    assert [done for done, _, _ in seen] == [1, 2, 3, 4]
    assert seen[-1][1] == 4
    assert 0 < seen[0][2] <= seen[-1][2] <= 1


def test_noise_does_not_flatter(small_schema, monkeypatch) -> None:
    """Clients whose label is a coin: any AUC above ½ is noise that was learnt and met again."""
    rng = np.random.default_rng(1)
    plan = fw.plan(small_schema, epsilon=0.3)
    releases = []
    for i in range(4):
        coins = pl.Series(rng.integers(0, 2, 600) * 90_000.0)
        frame = make_people(600, seed=i).with_columns(INCOME=coins)
        releases.append(fw.release(plan, frame, client=f"c{i}", simulated=True, seed=10 + i))
    pool = fw.Pool.of(releases)
    how = {"random": 0, "everyone": False, "stages": 3, "records": 1_000, "judged": 4_000}
    settings = fw.Training(rounds=8, lr=0.02, model="logistic")
    split = rehearse(pool, ["c0", "c1"], settings, **how).value("auc")
    monkeypatch.setattr(stage, "fission", lambda pool, rng: (fw.estimate(pool), fw.estimate(pool)))
    shared = rehearse(pool, ["c0", "c1"], settings, **how).value("auc")
    assert split < 0.55
    assert shared > split + 0.04


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stages": 1}, "stages must be at least 2"),
        ({"records": 0}, "records must be at least 1"),
        ({"random": -1}, "random must be at least 0"),
    ],
)
def test_numbers_that_make_no_sense(pool, change, message) -> None:
    with pytest.raises(fw.FedwiseError, match=message):
        rehearse(pool, ["good0"], QUICK, **change)


def test_federations_that_cannot_be(pool) -> None:
    with pytest.raises(fw.FedwiseError, match="no client 'good9'"):
        rehearse(pool, ["good9"], QUICK)
    with pytest.raises(fw.FedwiseError, match="each client once"):
        rehearse(pool, ["good0", "good0"], QUICK)
    with pytest.raises(fw.FedwiseError, match="federations must be lists"):
        rehearse(pool, "good0", QUICK)
    with pytest.raises(fw.FedwiseError, match="at least one client each"):
        rehearse(pool, [[]], QUICK)
