"""Noise studies: the corrected gradient predicts the spread, the printed one does not."""

from __future__ import annotations

import math

import census
import noise
import numpy as np
import pytest

import fedwise as fw
from fedwise.objective.information import gradient, information
from fedwise.objective.pfl import loss

#: Strongly associated and without small cells: the regime the delta method is for.
TABLE = np.array([[9000.0, 700.0, 300.0], [600.0, 5000.0, 900.0], [200.0, 800.0, 2500.0]])


@pytest.fixture(scope="module")
def tabled() -> census.Tabled:
    return census.load("synthetic", states=8, mean_rows=20, test_rows=200).sex


def test_corrected_gradient_is_the_derivative_and_the_printed_one_is_not() -> None:
    step = 1e-3
    numeric = np.empty_like(TABLE)
    for cell in np.ndindex(TABLE.shape):
        up, down = TABLE.copy(), TABLE.copy()
        up[cell] += step
        down[cell] -= step
        numeric[cell] = (information(up) - information(down)) / (2 * step)
    np.testing.assert_allclose(gradient(TABLE), numeric, rtol=1e-5, atol=1e-12)
    assert np.max(np.abs(noise.printed_gradient(TABLE) - numeric)) > 0.5 * np.max(np.abs(numeric))


def test_spread_at_high_signal_to_noise() -> None:
    """6,000 draws: standard error 0.9% of the spread, so 5% is a false alarm in 10 million."""
    errors = noise.mi_errors(TABLE, 1000, 6000, np.random.default_rng(5))
    sigma = float(TABLE.mean()) / 1000
    observed = float(errors.std(ddof=1))
    assert noise.spread_by(gradient(TABLE), sigma) == pytest.approx(observed, rel=0.05)
    assert abs(noise.spread_by(noise.printed_gradient(TABLE), sigma) / observed - 1) > 0.2
    assert abs(float(errors.mean())) < 5 * observed / math.sqrt(6000)


def test_low_signal_to_noise_biases_upward() -> None:
    errors = noise.mi_errors(np.full((6, 6), 50.0), 1, 400, np.random.default_rng(6))
    assert errors.min() > 0


def test_fast_losses_are_the_reference(tabled: census.Tabled) -> None:
    federations = np.array([[0, 1, 2], [2, 5, 7]])
    found = noise.Losses(tabled, federations, 1.0)
    truth = tabled.truth()
    assert found.true == pytest.approx([loss(truth, members, fw.Weights()) for members in federations])
    noisy = found.draw(np.random.default_rng(1))
    assert np.all(noisy != found.true)


def test_studies_have_their_columns(tabled: census.Tabled) -> None:
    orders = noise.study_orders(tabled, k=3, epsilons=(1.0, 50.0), pairs=3, draws=40)
    assert orders.height == 6
    exact = orders.filter(epsilon=50.0)
    # With next to no noise nothing is misordered but pairs that are nearly equal.
    assert all(line["misordered"] == 0 or line["bound"] > 0.1 for line in exact.to_dicts())
    assert orders["difference_ratio"].min() > 0.2
    optimality = noise.study_optimality(tabled, k=3, epsilons=(50.0,), sample=20, draws=40)
    assert (optimality["missed_unbiased"] <= optimality["bound"]).all()
    table = noise.study_information(tabled, [0, 1, 2], 20)
    assert table["pair"].n_unique() == len(noise.PAIRS)
