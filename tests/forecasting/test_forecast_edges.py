"""The rare turns of the forecast: schemas it cannot serve, other populations, fronts that are cut short."""

from __future__ import annotations

import dataclasses

import msgspec
import numpy as np
import pytest

import fedwise as fw
from fedwise.errors import FedwiseError
from fedwise.forecasting import Forecaster, Settings
from fedwise.forecasting.design import Design
from fedwise.forecasting.metrics import auc
from fedwise.forecasting.objective import Forecast
from fedwise.forecasting.population import groups_of
from fedwise.forecasting.thinning import check_joined
from fedwise.forecasting.valuation import effects, front
from fedwise.schema.layout import Layout
from forecasting.forecast_pools import SCHEMA, codes_of, exact_estimates, frame_of

QUICK = Settings(records=512)


@pytest.fixture(scope="module")
def forecaster() -> Forecaster:
    return Forecaster(exact_estimates([codes_of(i, 400) for i in range(5)]), settings=QUICK)


def marginals(schema: fw.Schema) -> np.ndarray:
    return np.full(sum(schema.sizes), 100.0)


def changed(old: str, new: str) -> fw.Schema:
    return fw.Schema.parse(SCHEMA.to_toml().replace(old, new))


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        (SCHEMA, {"coding": "other"}, "coding must be 'one-hot' or 'schema', got 'other'"),
        (SCHEMA, {"attribute": "AGE"}, "AGE"),
        (
            fw.Schema.parse(
                '[columns.A]\nrole = "feature"\nlevels = [0, 1]\n'
                '[columns.T]\nrole = "target"\nlevels = [0, 1, 2]\nunknown = "other"\n'
            ),
            {},
            "must have at least two levels, all of them declared, to be forecast",
        ),
        (
            fw.Schema.parse(
                '[columns.A]\nrole = "feature"\nlevels = [0, 1]\nmodel = "drop"\n'
                '[columns.T]\nrole = "target"\nlevels = [0, 1]\n'
            ),
            {},
            "must see at least one feature",
        ),
    ],
)
def test_designs_that_cannot_be(schema: fw.Schema, options: dict[str, str], message: str) -> None:
    with pytest.raises(FedwiseError, match=message):
        Design.of(schema, marginals(schema), **options)  # type: ignore[arg-type]


def test_scaled_levels_are_numbers() -> None:
    """A scaled column of levels is one input: the level itself."""
    schema = fw.Schema.parse(
        '[columns.A]\nrole = "feature"\nlevels = [0, 1, 4]\nmodel = "scaled"\nscale = [0, 1]\n'
        '[columns.B]\nrole = "feature"\nbins = [0, 10, 30]\nmodel = "scaled"\n'
        '[columns.T]\nrole = "target"\nlevels = [0, 1]\n'
    )
    design = Design.of(schema, marginals(schema), coding="schema")
    matrix = design.matrix(np.array([[0, 1, 2], [0, 1, 0], [0, 0, 1]]))
    assert matrix.shape[1] == 3
    one = matrix[:, 1]
    assert one[2] - one[0] == pytest.approx(4 * (one[1] - one[0]))
    # Without a scale of its own a column of bins is centred on its range.
    np.testing.assert_allclose(matrix[:, 2], [(5 - 15) / 15, (20 - 15) / 15, (5 - 15) / 15])


def test_without_a_sensitive_attribute_everybody_is_one_group() -> None:
    schema = fw.Schema.parse(
        '[columns.A]\nrole = "feature"\nlevels = [0, 1]\n[columns.T]\nrole = "target"\nlevels = [0, 1]\n'
    )
    design = Design.of(schema, marginals(schema))
    assert design.attribute is None
    assert groups_of(design, np.zeros((2, 4), np.int16)).tolist() == [0, 0, 0, 0]


def test_a_model_blind_to_the_attribute_still_compares_its_groups() -> None:
    estimates = exact_estimates([codes_of(i, 400) for i in range(4)])
    for link in ("logistic", "linear"):
        blind = Forecaster(
            estimates,
            settings=Settings(records=512, use_sensitive=False, link=link),  # type: ignore[arg-type]
        )
        found = msgspec.to_builtins(blind.predict(["c0", "c1"], draws=0).metrics)
        assert 0.0 <= found["spd"] <= 1.0
        assert 0.5 < found["accuracy"] <= 1.0


def test_the_people_of_other_estimates(forecaster: Forecaster) -> None:
    own = forecaster.estimates
    others = exact_estimates([codes_of(i, 400) for i in range(7, 9)])
    aimed = Forecaster(own, others, settings=QUICK)
    assert aimed.population.sample.codes.shape[1] >= 100
    foreign = dataclasses.replace(others, schema=changed('"jobs"', '"work"'))
    with pytest.raises(FedwiseError, match="target must be estimates of the pool's schema"):
        Forecaster(own, foreign, settings=QUICK)
    with pytest.raises(FedwiseError, match="target must have at least one row"):
        Forecaster(own, frame_of(codes_of(0, 10)).head(0), settings=QUICK)


def test_one_class_alone_has_no_order() -> None:
    scores, weights = np.array([0.1, 0.5, 0.9]), np.ones(3)
    assert auc(scores, np.ones(3), weights) == 0.5
    assert auc(scores, np.zeros(3), weights) == 0.5
    assert auc(scores, np.array([0.0, 0.0, 1.0]), weights) == 1.0


def test_an_objective_that_saw_no_estimates() -> None:
    with pytest.raises(FedwiseError, match="must see the estimates first"):
        Forecast("accuracy", subject_to={"spd": 0.1}).missed(np.zeros(3))


def test_tables_that_do_not_connect_the_variables() -> None:
    layout = Layout.of(SCHEMA, (("AGE", "JOB"), ("SEX", "RICH")))
    shares = np.concatenate([np.full(20, 1 / 20), np.full(4, 1 / 4)])
    with pytest.raises(FedwiseError, match="tables that connect all variables"):
        check_joined(layout, shares, [0, 1, 3, 4])


def test_effects_and_fronts_refuse_nonsense(forecaster: Forecaster) -> None:
    with pytest.raises(FedwiseError, match="orders must be at least 2, got 1"):
        effects(forecaster, [0, 1], orders=1)
    with pytest.raises(FedwiseError, match="gap must be one of"):
        front(forecaster, 2, gap="accuracy")
    with pytest.raises(FedwiseError, match="points must be at least 2, got 1"):
        front(forecaster, 2, points=1)


def test_a_front_at_given_limits_and_one_that_is_stopped(forecaster: Forecaster) -> None:
    found = front(forecaster, 2, limits=[0.5, 0.01], threads=1, method="greedy-forward")
    gaps = [point.gap for point in found]
    assert gaps == sorted(gaps)

    def cancel(*_: float) -> None:
        raise KeyboardInterrupt

    cut = front(forecaster, 2, points=3, threads=1, progress=cancel, method="greedy-forward")
    assert len(cut) >= 1
