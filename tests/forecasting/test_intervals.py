"""Intervals of the forecast: the shared rule over noise and gap, and what a selection and a report say of them."""

from __future__ import annotations

import msgspec
import pytest

from fedwise.forecasting import ALL, Forecaster, Settings, predict
from fedwise.forecasting.gap import gap_of
from fedwise.forecasting.metrics import Metrics
from fedwise.forecasting.settings import Prediction
from fedwise.objective.interval import UNKNOWN, Z, interval
from fedwise.search.selection import ForecastValue
from fedwise.view.forecasts import measures
from forecasting.forecast_pools import codes_of, exact_estimates, noisy_estimates

QUICK = Settings(records=500)


def test_without_noise_the_gap_alone_is_left() -> None:
    found = predict(exact_estimates([codes_of(i) for i in range(4)]), [0, 1], draws=4, settings=QUICK)
    for name in ALL:
        bounds = found.interval(name)
        assert bounds == interval(name, found.metrics.value(name), noise=0.0, gap=gap_of(name))
        assert bounds is not None
        assert bounds.known
        assert bounds.low <= found.metrics.value(name) <= bounds.high
    auc = found.interval("auc")
    assert auc is not None
    assert found.metrics.auc - auc.low == pytest.approx(Z * gap_of("auc"))


def test_noise_widens_the_interval() -> None:
    quiet = predict(exact_estimates([codes_of(i) for i in range(4)]), [0, 1], draws=4, settings=QUICK)
    noisy = predict(
        noisy_estimates([codes_of(i) for i in range(4)], 20.0, seed=1), [0, 1], draws=8, settings=QUICK
    )
    first, second = quiet.interval("auc"), noisy.interval("auc")
    assert first is not None
    assert second is not None
    assert second.high - second.low > first.high - first.low


def test_no_redraws_no_interval() -> None:
    found = predict(exact_estimates([codes_of(i) for i in range(4)]), [0, 1], draws=0, settings=QUICK)
    assert found.interval("auc") is None


def test_noise_that_drowns_the_forecast_is_said() -> None:
    sample = predict(exact_estimates([codes_of(i) for i in range(4)]), [0, 1], draws=0, settings=QUICK)
    metrics: Metrics = sample.metrics
    bounds = Prediction(sample.clients, metrics, {"auc": 0.2}).interval("auc")
    assert bounds is not None
    assert not bounds.known
    assert str(ForecastValue("auc", 0.8, 0.2, *bounds)) == f"auc {UNKNOWN}"


def test_a_value_in_words() -> None:
    assert str(ForecastValue("balanced_accuracy", 0.75, 0.01, 0.7, 0.8)) == (
        "balanced accuracy 0.7500 (90%: 0.700 to 0.800)"
    )
    assert str(ForecastValue("auc", 0.75, 0.01)) == "auc 0.7500 ± 0.01"


def test_a_report_shows_the_same_interval() -> None:
    forecaster = Forecaster(exact_estimates([codes_of(i) for i in range(4)]), settings=QUICK)
    shown = {m.metric: m for m in measures(forecaster, ["c0", "c1"])}
    bounds = forecaster.predict(["c0", "c1"]).interval("auc")
    assert bounds is not None
    assert (shown["auc"].low, shown["auc"].high, shown["auc"].known) == bounds


def test_files_without_intervals_stay_readable() -> None:
    old = b'{"metric": "auc", "value": 0.8, "std_error": 0.01}'
    assert msgspec.json.decode(old, type=ForecastValue).low is None
