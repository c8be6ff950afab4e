"""Rehearsal as an objective: it finds good clients, keeps limits with a margin, repeats, stops, says how sure it is."""

from __future__ import annotations

import math

import polars as pl
import pytest

import fedwise as fw
from conftest import make_people
from fedwise.errors import Infeasible
from fedwise.rehearsal.goal import Goal
from fedwise.rehearsal.order import order_of
from fedwise.rehearsal.performance import Performance

QUICK = fw.Training(rounds=2, lr=0.05, model="logistic", batch=64)
GOOD = {f"good{i}" for i in range(4)}


def spoilt(seed: int) -> pl.DataFrame:
    """People whose income has nothing to do with them."""
    frame = make_people(500, seed=seed)
    return frame.with_columns(INCOME=frame["INCOME"].sample(fraction=1.0, shuffle=True, seed=seed))


@pytest.fixture(scope="module")
def pool(small_schema) -> fw.Pool:
    plan = fw.plan(small_schema, epsilon=3.0)
    frames = {f"good{i}": make_people(500, seed=i) for i in range(4)}
    frames |= {f"bad{i}": spoilt(i) for i in range(5)}
    return fw.Pool.of(
        fw.release(plan, frame, client=name, simulated=True, seed=i)
        for i, (name, frame) in enumerate(frames.items())
    )


def rehearsal(maximise="auc", **options) -> fw.Rehearsal:
    return fw.Rehearsal(maximise, settings=QUICK, **{"trials": 40, "records": 150, "stages": 2, **options})


@pytest.fixture(scope="module")
def chosen(pool) -> fw.Selection:
    return fw.select(pool, 3, objective=rehearsal(target=["good0"]), seed=2)


def test_good_clients_are_chosen_with_evidence(chosen, tmp_path) -> None:
    assert len(GOOD & set(chosen.clients)) >= 2
    assert chosen.objective == chosen.method == "rehearsal"
    assert chosen.status == "found"
    assert chosen.loss == pytest.approx(-chosen.rehearsal.metrics[0].value, abs=0.02)
    assert "rehearsed in full" in chosen.certificate.statement
    assert "with a chance" in chosen.certificate.left_open
    assert 0 < chosen.evaluations <= 40
    assert all(other.clients != chosen.clients for other in chosen.alternatives)
    assert chosen.rehearsal.random > 0
    assert chosen.rehearsal.goal == "auc"
    chosen.save(tmp_path / "selection.json")
    assert fw.Selection.load(tmp_path / "selection.json") == chosen
    assert chosen.rehearsal.verdict in str(chosen)


def test_equal_seeds_choose_alike_and_constraints_hold(pool, chosen) -> None:
    again = fw.select(pool, 3, objective=rehearsal(target=["good0"]), seed=2)
    assert (again.clients, again.loss, again.rehearsal) == (chosen.clients, chosen.loss, chosen.rehearsal)
    bound = fw.select(pool, 2, objective=rehearsal(), include=["bad3"], exclude=["good0"], alternatives=9)
    assert all(
        "bad3" in m and "good0" not in m for m in [bound.clients, *(a.clients for a in bound.alternatives)]
    )


def test_limits_that_nobody_keeps_name_the_nearest_miss(pool) -> None:
    with pytest.raises(
        Infeasible, match=r"nearest miss is .*auc is rehearsed at 0\.\d+, the limit is at least 0.99"
    ):
        fw.select(pool, 3, objective=rehearsal("loss", subject_to={"auc": 0.99}))


def test_limits_keep_a_margin(pool) -> None:
    found = fw.select(pool, 3, objective=rehearsal(subject_to={"eod": "random", "loss": 0.9}))
    assert found.rehearsal.goal == "auc, eod ≤ random, loss ≤ 0.9"
    assert not any("loss" in flag for flag in found.flags)


def test_a_limit_in_seconds_ends_early_and_says_so(pool, tmp_path) -> None:
    with pytest.raises(fw.FedwiseError, match="stopped before the first"):
        fw.select(pool, 3, objective=rehearsal(seconds=1e-6))
    calls: list[int] = []

    def stop(done: int, _total: int, _best: float) -> None:
        if done >= 8:
            calls.append(done)
            raise KeyboardInterrupt

    half = fw.select(
        pool, 3, objective=rehearsal(target=["good0"], output=tmp_path / "run"), seed=2, progress=stop
    )
    assert half.status == "interrupted"
    assert calls[0] < 40
    assert (tmp_path / "run" / "trainings.jsonl").read_bytes().count(b"\n") == half.evaluations


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"maximise": "aucc"}, "maximise must be a metric"),
        ({"maximise": {"auc": 0.0}}, "weight other than 0"),
        ({"maximise": {"auc": math.nan}}, "finite number"),
        ({"subject_to": {"eod": 2.0}}, "between 0 and 1"),
        ({"subject_to": {"eod": "least"}}, "a number or 'random'"),
        ({"trials": 5}, "trials must be at least 40"),
        ({"seconds": -1.0}, "seconds must be"),
        ({"margin": -1.0}, "margin must be"),
    ],
)
def test_mistakes_in_settings(options, message) -> None:
    with pytest.raises(fw.FedwiseError, match=message):
        fw.Rehearsal(**options)


def test_mistakes_in_the_question(pool) -> None:
    with pytest.raises(fw.FedwiseError, match="sensitive attribute, got 'RACE'"):
        fw.select(pool, 3, objective=rehearsal(subject_to={"eod:RACE": 0.1}))
    with pytest.raises(fw.FedwiseError, match="must see the releases"):
        fw.select(fw.estimate(pool), 3, objective=rehearsal())
    with pytest.raises(fw.FedwiseError, match="smallest must be left out"):
        fw.select(pool, objective=rehearsal(), smallest=0.1)


def test_a_run_directory_holds_the_choice_for_the_report(pool, tmp_path) -> None:
    options = {"target": ["good0"], "output": tmp_path / "run", "subject_to": {"spd": "random"}}
    made = fw.select(pool, 3, objective=rehearsal(**options), seed=2)
    kept = fw.Selection.load(tmp_path / "run" / "selection.json")
    assert kept.clients == made.clients
    shown = [one.metric for one in made.rehearsal.metrics]
    assert shown[0] == "auc"
    assert sum(name.startswith("spd:") and "@" not in name for name in shown) == 1
    assert len(set(shown)) == len(shown)


def test_a_method_is_not_ignored_in_silence(pool) -> None:
    with pytest.raises(fw.FedwiseError, match="method must be left out"):
        fw.select(pool, 3, objective=rehearsal(), method="exact")


def test_how_sure_the_order_is() -> None:
    def made(*values: float) -> Performance:
        return Performance(
            role="federation", clients=("a",), stages=tuple(range(len(values))), values={"auc": values}
        )

    clear = order_of([made(0.9, 0.91, 0.9), made(0.7, 0.71, 0.701)], Goal.of("auc"))
    assert clear.chance < 0.01
    assert "below 5%" in clear.sentence(Goal.of("auc"), 1)
    assert clear.sentence(Goal.of("auc"), 1).startswith(
        "The one other that was rehearsed as often is truly better"
    )
    limited = Goal.of("auc", {"eod": 0.1})
    assert "One of the 2 others that were rehearsed as often and keep the limits" in clear.sentence(
        limited, 2
    )
    assert "No other federation was rehearsed as often and keeps the limits" in clear.sentence(limited, 0)
    open_ = order_of([made(0.8, 0.7), made(0.69, 0.8), made(0.75, 0.76)], Goal.of("auc"))
    assert 0.4 < open_.chance < 0.9
    assert sum(open_.chances) == pytest.approx(1.0)
    assert "not known" in order_of([made(0.8), made(0.7)], Goal.of("auc")).sentence(Goal.of("auc"), 1)
