"""Uncertainty: error bars of the loss against Monte Carlo."""

from __future__ import annotations

import numpy as np
import pytest

from estimation.noisy_pools import truth
from fedwise.estimation import uncertainty
from fedwise.estimation.estimates import Estimates
from fedwise.estimation.uncertainty import standard_error
from fedwise.objective.pfl import Weights, loss


def test_plain_error_is_the_spread_over_noise_draws() -> None:
    known = truth(6, rows=20_000)
    sigmas = np.full(known.layout.tables, 8.0)
    members = [0, 1, 2, 3, 4]

    def plain(seed: int) -> Estimates:
        names = tuple("abcdef")
        cells = known.noisy(sigmas, seed)
        return Estimates.plain(names, known.schema, known.layout, cells, sigmas)

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


def test_a_client_with_more_noise_than_others_errs_in_all_its_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    known = truth(12)
    one = np.full((12, known.layout.tables), 40.0)
    mixed = one.copy()
    mixed[:4] = 400.0

    def error(sigmas: np.ndarray, members: list[int], factor: float) -> float:
        monkeypatch.setattr(uncertainty, "TOGETHER", factor)
        return standard_error(known.estimates(known.noisy(sigmas, 1), sigmas), members, Weights())

    assert error(one, [0, 1, 2], 3.0) == error(one, [0, 1, 2], 0.0)
    assert error(mixed, [5, 6, 7], 3.0) == error(mixed, [5, 6, 7], 0.0)
    assert error(mixed, [0, 1, 2], 3.0) > 1.2 * error(mixed, [0, 1, 2], 0.0)
