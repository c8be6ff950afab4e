"""Information: the gradient's sign, and error bars against Monte Carlo."""

from __future__ import annotations

import numpy as np
import pytest

from estimation.noisy_pools import truth
from fedwise.estimation.estimates import Estimates
from fedwise.estimation.information import gradient, information, pointwise, standard_error
from fedwise.objective.pfl import Weights, loss

TABLE = np.array([[120.0, 30.0, 50.0], [40.0, 90.0, 70.0]])


def test_gradient_is_pmi_minus_information_not_the_printed_sign() -> None:
    numeric = np.zeros_like(TABLE)
    for at in np.ndindex(*TABLE.shape):
        step = np.zeros_like(TABLE)
        step[at] = 1e-3
        numeric[at] = (information(TABLE + step) - information(TABLE - step)) / 2e-3
    np.testing.assert_allclose(gradient(TABLE), numeric, atol=1e-9)
    n = TABLE.sum()
    printed = -(pointwise(TABLE) + information(TABLE)) / n
    assert np.abs(printed - numeric).max() > 0.5 * np.abs(numeric).max()


def test_gradient_of_an_empty_table_is_zero() -> None:
    np.testing.assert_array_equal(gradient(np.zeros((2, 2))), 0.0)
    assert gradient(np.array([[5.0, -3.0], [0.0, 5.0]]))[0, 1] == 0.0


def test_plain_error_is_the_spread_over_noise_draws() -> None:
    known = truth(6, rows=20_000)
    sigmas = np.full(known.layout.tables, 8.0)
    members = [0, 1, 2, 3, 4]

    def plain(seed: int) -> Estimates:
        names = tuple("abcdef")
        cells = known.noisy(sigmas, seed)
        return Estimates(
            names, known.schema, known.layout, cells, cells[:, :12].sum(1), None, "plain", sigmas
        )

    seen = np.std([loss(plain(seed), members, Weights()) for seed in range(400)])
    # 400 draws: the spread is known to 3.5%; 20% allows for that and for curvature.
    assert standard_error(plain(0), members, Weights()) == pytest.approx(seen, rel=0.2)


def test_error_is_zero_for_exact_counts() -> None:
    assert standard_error(truth(4).true_estimates(), [0, 1], Weights()) == 0.0


def test_error_grows_with_noise_and_never_beyond_the_pool_spread() -> None:
    known = truth(12)
    found = []
    for sigma in (2.0, 20.0, 200.0):
        sigmas = np.full(known.layout.tables, sigma)
        found.append(standard_error(known.estimates(known.noisy(sigmas, 1), sigmas), [0, 1, 2], Weights()))
    assert 0 < found[0] < found[1] < found[2] < 1.0


@pytest.mark.parametrize("sigma", [15.0, 50.0])
def test_the_interval_covers_the_true_loss(sigma: float) -> None:
    # Mean coverage over 24 draws of 6 fixed federations, of an estimator whose coverage is near 95%. Were
    # federations of one draw fully dependent, fewer than 83% inside would have a chance of 0.6%.
    known = truth(30, rows=12_000, seed=1)
    exact = known.true_estimates()
    rng = np.random.default_rng(0)
    federations = [rng.choice(30, k, replace=False) for k in (5, 10, 15) for _ in range(2)]
    true = [loss(exact, f, Weights()) for f in federations]
    sigmas = np.full(known.layout.tables, sigma)
    inside = []
    for seed in range(24):
        estimates = known.estimates(known.noisy(sigmas, seed), sigmas)
        for f, value in zip(federations, true, strict=True):
            error = abs(loss(estimates, f, Weights()) - value)
            inside.append(error <= 1.96 * standard_error(estimates, f, Weights()))
    assert 0.83 <= np.mean(inside) < 1.0
