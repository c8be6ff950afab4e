"""Stages: doubles and judges of a pool, repeatable."""

from __future__ import annotations

import numpy as np
import pytest

import fedwise as fw
from conftest import make_people
from fedwise.estimation import estimate
from fedwise.rehearsal.hidden import learnt
from fedwise.rehearsal.judging import corrected, reliability
from fedwise.rehearsal.settling import settled
from fedwise.rehearsal.stage import TARGET, Stage
from fedwise.rehearsal.trainings import judged
from fedwise.training.encoding import Encoder, Rows
from fedwise.training.model import Model
from fedwise.training.simulate import simulate


@pytest.fixture(scope="module")
def pool(small_schema) -> fw.Pool:
    plan = fw.plan(small_schema, epsilon=3.0)
    return fw.Pool.of(
        fw.release(plan, make_people(1500, seed=i), client=f"c{i}", simulated=True, seed=i) for i in range(4)
    )


@pytest.fixture(scope="module")
def stage(pool) -> Stage:
    return Stage(pool, Encoder(pool.plan.schema), seed=1, share=0.8, judged=4_000)


def test_doubles_train_and_the_pool_judges(pool, stage) -> None:
    prepared = stage.prepared(["c1", "c3"])
    assert prepared.clients == ("c1", "c3")
    assert len(prepared.train["c1"]) == pytest.approx(1200, abs=60)
    assert list(prepared.test) == [TARGET]
    assert len(prepared.held_out) == 1
    assert len(stage.judges.rows) == len(stage.judges.chance) == 4_000
    real = np.mean([Encoder(pool.plan.schema).encode(make_people(1500, seed=i)).y.mean() for i in range(4)])
    assert stage.judges.chance.mean() == pytest.approx(real, abs=0.03)


def test_stages_repeat_and_differ_by_number(pool, stage) -> None:
    again = Stage(pool, stage.encoder, seed=1, share=0.8, judged=4_000)
    other = Stage(pool, stage.encoder, seed=1, number=1, share=0.8, judged=4_000)
    np.testing.assert_array_equal(again.rows("c0").hot, stage.rows("c0").hot)
    assert not np.array_equal(other.judges.rows.hot, stage.judges.rows.hot)


def test_records_may_be_bounded_and_the_target_chosen(pool, stage) -> None:
    made = Stage(pool, stage.encoder, target=["c2"], records=100, judged=500)
    assert len(made.rows("c0")) == 100
    assert len(made.judges.rows) == 500
    with pytest.raises(fw.FedwiseError, match="no client 'c9'"):
        Stage(pool, stage.encoder, target=["c9"])
    with pytest.raises(fw.FedwiseError, match="target must name at least one"):
        Stage(pool, stage.encoder, target=[])


def test_gaps_are_judged_by_people_of_the_whole_release(pool, stage) -> None:
    """Their noise is the release's, half that of either half, so their rates lie nearer to the estimates of it."""
    assert len(stage.gap_judges.rows) == 3 * 4_000
    whole = estimate(pool)
    positive = whole.marginals[:, whole.layout.marginal(whole.schema.target)].sum(axis=0)
    assert stage.gap_judges.chance.mean() == pytest.approx(positive[1] / positive.sum(), abs=0.02)
    assert not np.array_equal(stage.gap_judges.rows.hot, stage.judges.rows.hot)
    settings = fw.Training(rounds=2, lr=1e-2)
    config = settings.config()
    found = judged(stage, ("c0", "c1"), config)
    model = Model.named(config.model, stage.encoder.width, stage.encoder.task)
    done = simulate(stage.prepared(("c0", "c1")), ("c0", "c1"), config, model=model)
    trained_on = Rows.concat([stage.rows(client) for client in ("c0", "c1")])
    scores_of = settled(model, done.parameters, trained_on, config)
    of_own = scores_of(stage.own.rows)
    factor = reliability(stage.judges, scores_of(stage.judges.rows), stage.own, of_own)
    known = learnt(of_own, stage.own.chance)
    for judges, of_groups in ((stage.judges, False), (stage.gap_judges, True)):
        people, scores = judges.facing(corrected(scores_of(judges.rows), factor), known)
        wanted, _ = people.measure(scores)
        for name, value in wanted.items():
            if (":" in name) == of_groups:
                assert found.final[name] == pytest.approx(value), name


def test_without_noise_all_judge_alike(small_schema) -> None:
    plan = fw.plan(small_schema, epsilon=np.inf)
    exact = fw.Pool.of(
        fw.release(plan, make_people(300, seed=i), client=f"c{i}", no_privacy=True) for i in range(2)
    )
    made = Stage(exact, Encoder(plan.schema), judged=200)
    assert made.gap_judges is None
    assert made.own is None
