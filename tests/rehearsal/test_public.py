"""Public rows as judges: they are the population, nothing of them is drawn, and other rows are another question."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import fedwise as fw
from conftest import make_people
from fedwise.doubling.target import PublicRows
from fedwise.rehearsal.public import PublicStage
from fedwise.training.encoding import Encoder
from fedwise.training.federation import Prepared, prepare
from fedwise.training.simulate import simulate

QUICK = fw.Training(rounds=6, lr=5e-3, model="logistic")
MEMBERS = ["c0", "c1"]


@pytest.fixture(scope="module")
def pool(small_schema) -> fw.Pool:
    plan = fw.plan(small_schema, epsilon=3.0)
    return fw.Pool.of(
        fw.release(plan, make_people(1200, seed=i), client=f"c{i}", simulated=True, seed=i) for i in range(4)
    )


@pytest.fixture(scope="module")
def public() -> pl.DataFrame:
    """People of another mixture than the clients': mostly with low incomes."""
    rows = make_people(3_000, seed=77)
    poor = rows["INCOME"] < rows["INCOME"].median()
    return pl.concat([rows.filter(poor), rows.filter(~poor).head(300)])


def rehearsed(pool: fw.Pool, target: object, **more: object) -> fw.Rehearsed:
    common = {"random": 0, "everyone": False, "stages": 2, "seed": 3}
    return fw.rehearse(pool, MEMBERS, QUICK, target=target, **common, **more)  # type: ignore[arg-type]


def test_the_rows_judge_as_they_are(pool, public) -> None:
    encoder = Encoder(pool.plan.schema)
    stage = PublicStage(pool, encoder, PublicRows(public, pool.plan.schema), seed=1, judged=20_000)
    np.testing.assert_array_equal(stage.judges.rows.hot, encoder.encode(public).hot)
    np.testing.assert_array_equal(stage.judges.chance, encoder.encode(public).y)
    small = PublicStage(pool, encoder, PublicRows(public, pool.plan.schema), seed=1, judged=500)
    assert len(small.judges.rows) == 500


def test_the_level_is_that_of_real_training_judged_by_them(pool, public, small_schema) -> None:
    figure = rehearsed(pool, public).federation.figure("loss")
    prepared = prepare({name: make_people(1200, seed=int(name[1])) for name in MEMBERS}, small_schema)
    judged = Prepared(prepared.encoder, prepared.train, {"public": prepared.encoder.encode(public)})
    real = simulate(judged, MEMBERS, QUICK.config()).value("loss")
    assert figure.low <= real <= figure.high
    everybody = rehearsed(pool, None).value("loss")
    assert abs(figure.value - real) < abs(everybody - real)


def test_a_run_directory_holds_one_target(pool, public, tmp_path: Path) -> None:
    path = tmp_path / "public.parquet"
    public.write_parquet(path)
    first = rehearsed(pool, path, records=200, output=tmp_path / "run")
    assert rehearsed(pool, public, records=200, output=tmp_path / "run") == first
    with pytest.raises(fw.FedwiseError, match="begun with other settings"):
        rehearsed(pool, public.head(500), records=200, output=tmp_path / "run")
