"""Forecasts from two halves of the noise: not flattered, and the same as before without noise."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import fedwise as fw
from conftest import make_people
from fedwise.estimation import Estimates
from fedwise.estimation.fission import split_noise
from fedwise.forecasting import Forecaster
from fedwise.forecasting.halves import signal


@pytest.fixture(scope="module")
def coins(small_schema) -> fw.Pool:
    """Clients whose label is a coin: any AUC above ½ is noise that was learnt and met again."""
    rng = np.random.default_rng(1)
    plan = fw.plan(small_schema, epsilon=0.3)
    frames = [
        make_people(600, seed=i).with_columns(INCOME=pl.Series(rng.integers(0, 2, 600) * 90_000.0)) for i in range(6)
    ]  # fmt: skip
    return fw.Pool.of(
        fw.release(plan, frame, client=f"c{i}", simulated=True, seed=10 + i) for i, frame in enumerate(frames)
    )


def test_noise_does_not_flatter_a_forecast(coins) -> None:
    estimates = fw.estimate(coins)
    split = Forecaster(estimates)
    whole = Forecaster.__new__(Forecaster)
    whole._build(estimates, None, split.settings)
    members = list(coins.clients[:3])
    assert split.reliability(3) < 1.0
    # The whole learns its own noise: well above ½. One draw of the noise leaves the split one within 0.1 of ½.
    assert whole.predict(members, draws=0).metrics.auc > split.predict(members, draws=0).metrics.auc + 0.02
    assert split.predict(members, draws=0).metrics.auc == pytest.approx(0.5, abs=0.1)


def test_predictions_and_batches_agree(coins) -> None:
    made = Forecaster(fw.estimate(coins))
    members = made.positions(coins.clients[1:4])
    sums = np.stack([made.rows[members].sum(axis=0), made.rows.sum(axis=0)])
    values = made.values(sums, ("auc", "balanced_accuracy", "eod@rate"))
    alone = made.predict(list(coins.clients[1:4]), draws=0).metrics
    assert values[0] == pytest.approx(
        [alone.value(n) for n in ("auc", "balanced_accuracy", "eod@rate")], abs=0.01
    )
    assert made.rates(sums).shape == (2, 2, 2)


def test_halves_are_independent_and_need_noise(coins) -> None:
    estimates = fw.estimate(coins)
    first, second = split_noise(estimates, np.random.default_rng(0))
    np.testing.assert_allclose((first.released + second.released) / 2, estimates.released)
    noiseless = Estimates.plain(
        estimates.clients, estimates.schema, estimates.layout, np.abs(estimates.cells)
    )
    assert split_noise(noiseless, np.random.default_rng(0)) is None


def test_signal_is_the_correlation_of_scores() -> None:
    spread = np.diag([0.0, 1.0, 1.0])
    assert signal(np.array([3.0, 1.0, 0.0]), np.array([0.0, 1.0, 1.0]), spread) == pytest.approx(np.sqrt(0.5))
    assert signal(np.array([0.0, 1.0, 0.0]), np.array([0.0, -1.0, 0.0]), spread) == 0.05
