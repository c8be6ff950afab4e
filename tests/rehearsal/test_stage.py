"""Stages: doubles and judges of a pool, repeatable."""

from __future__ import annotations

import numpy as np
import pytest

import fedwise as fw
from conftest import make_people
from fedwise.rehearsal.stage import TARGET, Stage
from fedwise.training.encoding import Encoder


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
