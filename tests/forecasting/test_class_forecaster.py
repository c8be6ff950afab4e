"""The forecast of several classes and of numbers: two classes as a special case, regressions on rows, mistakes."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from scipy.stats import spearmanr

import fedwise as fw
from fedwise.errors import FedwiseError
from fedwise.estimation.estimates import Estimates
from fedwise.forecasting import (
    Forecast,
    Forecaster,
    Labels,
    Settings,
    effects,
    names_for,
    with_forecast,
)
from fedwise.forecasting.class_anchor import chances, fit_classes
from fedwise.forecasting.class_forecaster import ClassForecaster, NumberForecaster
from fedwise.forecasting.class_kernels import decide, errors
from fedwise.owner.tables import count
from fedwise.schema.layout import Layout
from forecasting.forecast_pools import SCHEMA, codes_of, exact_estimates, noisy_estimates

QUICK = Settings(records=512)


def three(client: int, rows: int = 1500) -> np.ndarray:
    """Codes of one client with a target of three levels that rise with age and job."""
    codes = codes_of(client, rows).copy()
    rng = np.random.default_rng([9, client])
    tilt = np.random.default_rng([10, client]).normal(size=2) * 0.5
    scores = np.stack([np.zeros(rows), 0.5 * codes[0] + tilt[0] * codes[3] - 1, 0.9 * codes[1] + tilt[1] - 2])
    scores += rng.gumbel(size=scores.shape)
    codes[4] = scores.argmax(axis=0)
    return codes


def schema_of(kind: str) -> fw.Schema:
    text = SCHEMA.to_toml()
    first = text.index("[columns.RICH]")
    target = {
        "classes": '[columns.QUARTER]\nrole = "target"\nlevels = ["low", "middle", "high"]\n',
        "number": '[columns.PAY]\nrole = "target"\nbins = [0, 10, 20, 60]\nmodel = "scaled"\n',
    }[kind]
    return fw.Schema.parse(text[:first] + target)


def pool_of(kind: str, clients: int = 6, rows: int = 1500) -> Estimates:
    schema = schema_of(kind)
    names = schema.names
    layout = Layout.of(schema, tuple((x, y) for i, x in enumerate(names) for y in names[i + 1 :]))
    cells = np.stack([count(three(i, rows), layout).exact for i in range(clients)]).astype(float)
    return Estimates.plain(
        tuple(f"c{i}" for i in range(clients)), schema, layout, cells, np.zeros(layout.tables)
    )


@pytest.mark.parametrize("sigma", [0.0, 5.0])
def test_two_classes_are_the_special_case(sigma: float) -> None:
    """The class forecaster on two classes says what the forecaster of two classes does."""
    codes = [codes_of(i, 400) for i in range(4)]
    pool = noisy_estimates(codes, sigma, seed=1) if sigma else exact_estimates(codes)
    two, many = Forecaster(pool, settings=QUICK), ClassForecaster(pool, settings=QUICK)
    assert type(two) is Forecaster
    np.testing.assert_allclose(many.coefficients([0, 2]), two.coefficients([0, 2]), atol=1e-9)
    np.testing.assert_allclose(many.rows, two.rows, atol=1e-9)
    old, new = two.predict([0, 2], draws=0).metrics, many.predict([0, 2], draws=0).metrics
    same = {"accuracy": "accuracy", "balanced_accuracy": "balanced_accuracy", "loss": "loss"}
    for name, other in {**same, "spd[1]": "spd", "eod[1]": "eod", "f1[1]": "f1"}.items():
        assert new.value(name) == pytest.approx(old.value(other), abs=1e-9), name
    assert new.value("brier") == pytest.approx(2 * old.value("brier"), abs=1e-9)
    names = ["accuracy", "balanced_accuracy", "loss"]
    quick, fast = (one.values(one.rows[[0, 2]].sum(axis=0)[None], names) for one in (many, two))
    np.testing.assert_allclose(quick[:, :2], fast[:, :2], atol=1e-6)
    # The forecaster of two classes counts scores in bins for its log loss.
    np.testing.assert_allclose(quick[:, 2], fast[:, 2], atol=2e-4)


def test_the_whole_pool_is_the_softmax_regression_of_its_rows() -> None:
    """With exact tables and public rows as people: coefficients and metrics against regression on the rows."""
    pool = pool_of("classes", clients=3, rows=4000)
    rows = np.concatenate([three(i, 4000) for i in range(3)], axis=1)
    found = Forecaster(pool, frame_of(rows), settings=Settings(records=4000))
    assert isinstance(found, ClassForecaster)
    inputs = found.design.matrix(rows)
    beta = fit_classes(inputs, np.eye(3)[rows[4]] / rows.shape[1])
    told = chances(inputs @ beta.T)
    mine = chances(inputs @ found.coefficients([0, 1, 2]).reshape(2, -1).T)
    # The anchor is fitted to a sample drawn from the pair tables, not to the rows.
    assert np.abs(mine - told).max() < 0.08
    metrics = found.predict([0, 1, 2], draws=0).metrics
    assert metrics.value("loss") == pytest.approx(
        -np.log(mine[np.arange(len(mine)), rows[4]]).mean(), abs=1e-6
    )
    assert metrics.value("accuracy") == pytest.approx((mine.argmax(axis=1) == rows[4]).mean(), abs=0.02)
    assert metrics.value("balanced_accuracy") == pytest.approx(
        np.mean([metrics.value(f"recall[{c}]") for c in ("low", "middle", "high")]), abs=1e-12
    )
    assert metrics.value("eod") == pytest.approx(
        np.mean([metrics.value(f"eod[{c}]") for c in ("low", "middle", "high")]), abs=1e-12
    )


def frame_of(codes: np.ndarray) -> pl.DataFrame:
    frame: dict[str, object] = {name: codes[i].astype(np.int64) for i, name in enumerate(SCHEMA.names[:4])}
    frame["AGE"] = np.array([10, 30, 50, 70])[codes[0]]
    frame["QUARTER"] = np.array(["low", "middle", "high"])[codes[4]]
    frame["PAY"] = np.array([5.0, 15.0, 40.0])[codes[4]]
    return pl.DataFrame(frame)


def test_federations_are_ranked_as_regressions_on_their_rows_rank_them() -> None:
    pool = pool_of("classes", clients=8)
    found = Forecaster(pool, settings=Settings(records=2048))
    rows = [three(i) for i in range(8)]
    people = np.concatenate(rows, axis=1)
    inputs = found.design.matrix(people)
    federations = [[a, b] for a in range(8) for b in range(a)]
    trained = []
    for members in federations:
        own = np.concatenate([rows[m] for m in members], axis=1)
        beta = fit_classes(found.design.matrix(own), np.eye(3)[own[4]] / own.shape[1])
        told = chances(inputs @ beta.T)
        trained.append(-np.log(told[np.arange(len(told)), people[4]]).mean())
    sums = np.stack([found.rows[members].sum(axis=0) for members in federations])
    assert spearmanr(found.values(sums, ["loss"])[:, 0], trained).statistic > 0.9


def test_a_number_is_linear_regression_on_the_rows() -> None:
    """Exact tables, public rows: squared errors of the bins' middles, plus the spread within the bins."""
    pool = pool_of("number", clients=4)
    rows = np.concatenate([three(i) for i in range(4)], axis=1)
    found = Forecaster(pool, frame_of(rows), settings=Settings(records=4000, ridge=1e-6))
    assert isinstance(found, NumberForecaster)
    members = np.concatenate([three(1), three(3)], axis=1)
    middle = np.array([5.0, 15.0, 40.0])
    inputs = found.design.matrix(members)
    beta = np.linalg.lstsq(inputs, middle[members[4]], rcond=None)[0]
    off = found.design.matrix(rows) @ beta - middle[rows[4]]
    within = np.array([10.0, 10.0, 40.0])[rows[4]] ** 2 / 12
    metrics = found.predict([1, 3], draws=0).metrics
    assert metrics.value("rmse") == pytest.approx(np.sqrt(np.mean(off**2 + within)), rel=1e-4)
    group = rows[3]
    gap = abs(off[group == 1].mean() - off[group == 0].mean())
    assert metrics.value("error_gap") == pytest.approx(gap, abs=1e-3)
    spread = np.var(middle[rows[4]]) + within.mean()
    assert metrics.value("r2") == pytest.approx(1 - np.mean(off**2 + within) / spread, abs=1e-4)


@pytest.mark.parametrize(
    ("told", "expected"),
    [(15.0, (0.0, 2.5, 100 / 12)), (25.0, (10.0, 10.0, 100 + 100 / 12)), (10.0, (-5.0, 5.0, 25 + 100 / 12))],
)
def test_errors_within_a_bin(told: float, expected: tuple[float, float, float]) -> None:
    out = np.zeros(3)
    errors(told, 10.0, 20.0, out)
    np.testing.assert_allclose(out, expected)


def test_the_two_highest_scores_share_a_decision() -> None:
    decision = np.zeros(2, np.int64)
    assert decide(np.array([0.0, 3.0, 2.95]), 0.1, decision) == pytest.approx(0.75)
    assert decision.tolist() == [1, 2]
    assert decide(np.array([1.0, -3.0, 0.0, 0.5]), 0.1, decision) == 1.0
    assert decision[0] == 0


@pytest.mark.parametrize("kind", ["classes", "number"])
def test_noise_gives_errors_and_is_not_learnt(kind: str) -> None:
    plan = fw.plan(schema_of(kind), 2.0)
    released = [
        fw.release(plan, frame_of(three(i)), client=f"c{i}", simulated=True, seed=i) for i in range(4)
    ]
    found = Forecaster(fw.estimate(fw.Pool.of(released)), settings=QUICK)
    told = found.predict(["c0", "c1"], draws=4)
    assert set(told.std_errors) == set(found.names)
    assert all(error >= 0 for error in told.std_errors.values())
    assert 0 < found.reliability(2) < 1
    assert Forecaster(pool_of(kind, clients=3, rows=300), settings=QUICK).reliability(2) == 1.0


def test_select_by_a_metric_of_classes_under_a_limit() -> None:
    pool = pool_of("classes")
    objective = Forecast("macro_f1", subject_to={"eod[high]": 0.5, "spd:SEX": 0.6}, settings=QUICK)
    chosen = with_forecast(
        fw.select(pool, 2, objective=objective, evidence="none"), pool, objective=objective
    )
    found = objective.forecaster
    assert found is not None
    pairs = [[a, b] for a in range(6) for b in range(a)]
    values = found.values(np.stack([found.rows[pair].sum(axis=0) for pair in pairs]), objective.names)
    best = pairs[int(np.argmin(objective.losses(values)))]
    assert set(chosen.clients) == {f"c{i}" for i in best}
    assert {one.metric for one in chosen.forecast} == set(names_for(Labels.of(pool.schema)))
    assert effects(found, ["c0", "c1"], metric="macro_f1", orders=4)


def test_select_by_the_error_of_a_number() -> None:
    pool = pool_of("number")
    objective = Forecast("rmse", subject_to={"mae_gap": 3.0}, settings=QUICK)
    chosen = fw.select(pool, 2, objective=objective, evidence="none")
    found = objective.forecaster
    assert found is not None
    pairs = [[a, b] for a in range(6) for b in range(a)]
    values = found.values(np.stack([found.rows[pair].sum(axis=0) for pair in pairs]), ["rmse"])[:, 0]
    own = found.predict(chosen.clients, draws=0).metrics.value("rmse")
    assert own <= np.quantile(values, 0.2) + 0.05


@pytest.mark.parametrize(
    ("kind", "metric"),
    [("classes", "auc"), ("classes", "eod@rate"), ("classes", "recall[none]"), ("number", "macro_f1")],
)
def test_metrics_of_other_targets_are_refused(kind: str, metric: str) -> None:
    with pytest.raises(FedwiseError, match="metric must be one that is forecast of target"):
        Forecaster(pool_of(kind, clients=3, rows=300), settings=QUICK).check_names([metric])


def test_what_classes_cannot_have() -> None:
    pool = pool_of("classes", clients=3, rows=300)
    with pytest.raises(FedwiseError, match="link must be 'logistic'"):
        Forecaster(pool, settings=Settings(records=512, link="linear"))
