"""Accounting: the composed loss against brute force over outcomes and against dp-accounting."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.optimize import brentq

from fedwise.privacy.accounting import LossDistribution, discrete_gaussian
from fedwise.privacy.scales import gaussian_delta, gaussian_epsilon


def masses(sigma: float, shift: int, reach: int) -> np.ndarray:
    """Probability of each integer in [-reach, reach] under noise of scale sigma around shift, in plain Python."""
    density = [math.exp(-((z - shift) ** 2) / (2 * sigma**2)) for z in range(-reach, reach + 1)]
    return np.array(density) / math.fsum(
        math.exp(-(z**2) / (2 * sigma**2)) for z in range(-2 * reach, 2 * reach + 1)
    )


def brute_delta(sigmas: list[float], epsilon: float) -> float:
    """Hockey-stick divergence Σ (P − e^ε Q)₊ over all outcomes of all tables together."""
    with_record, without = np.ones(1), np.ones(1)
    for sigma in sigmas:
        reach = math.ceil(9 * sigma) + 3
        with_record = np.outer(with_record, masses(sigma, 1, reach)).ravel()
        without = np.outer(without, masses(sigma, 0, reach)).ravel()
    return float(np.maximum(with_record - math.exp(epsilon) * without, 0).sum())


CASES = [[0.3], [0.6], [1.0], [3.7], [20.0], [0.6, 0.6], [0.9, 2.3], [3.0, 7.0], [1.0, 1.5, 2.0]]


@pytest.mark.parametrize("sigmas", CASES, ids=str)
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
def test_never_below_brute_force_and_hardly_above(sigmas: list[float], delta: float) -> None:
    ours = LossDistribution.of(sigmas)
    mu = math.sqrt(sum(sigma**-2.0 for sigma in sigmas))
    top = mu**2 + 12 * mu + 1 / min(sigmas) ** 2
    true = float(brentq(lambda e: brute_delta(sigmas, e) - delta, 0.0, top, xtol=1e-10))
    assert true * (1 - 1e-7) <= ours.epsilon(delta) <= true * 1.006 + 1e-9
    for epsilon in np.linspace(0.0, 1.5 * true, 7):
        exact = brute_delta(sigmas, float(epsilon))
        if exact > 1e-13:
            assert ours.delta(float(epsilon)) >= exact * (1 - 1e-7)


@pytest.mark.parametrize(
    "sigmas", [[2.0] * 10, [27.7] * 55, [3.0, 4.0, 5.0] * 4], ids=lambda s: f"{len(s)} tables"
)
def test_equals_dp_accounting(sigmas: list[float]) -> None:
    total = None
    for sigma in sigmas:
        one = pld.from_discrete_gaussian_mechanism(
            sigma, value_discretization_interval=1e-4 / len(sigmas) ** 0.5
        )
        total = one if total is None else total.compose(one)
    assert total is not None
    ours = LossDistribution.of(sigmas)
    for delta in (1e-8, 1e-5, 1e-2):
        assert ours.epsilon(delta) == pytest.approx(total.get_epsilon_for_delta(delta), rel=4e-3)


@pytest.mark.parametrize("sigmas", [[30.0] * 55, [300.0] * 10])
def test_wide_noise_is_the_gaussian_formula(sigmas: list[float]) -> None:
    mu = math.sqrt(sum(s**-2.0 for s in sigmas))
    ours = LossDistribution.of(sigmas)
    assert ours.epsilon(1e-5) == pytest.approx(gaussian_epsilon(mu, 1e-5), rel=2e-3)
    assert ours.delta(0.5) == pytest.approx(gaussian_delta(mu, 0.5), rel=1e-2)


def test_is_a_distribution_and_its_curve_is_delta() -> None:
    ours = LossDistribution.of([1.0, 2.0, 5.0])
    assert (ours.probabilities >= 0).all()
    assert ours.probabilities.sum() + ours.infinite == pytest.approx(1.0, abs=1e-9)
    assert (np.diff(ours.losses) > 0).all()
    epsilons, deltas = ours.curve()
    for at in range(0, len(epsilons), len(epsilons) // 20):
        assert deltas[at] == pytest.approx(ours.delta(float(epsilons[at])), rel=1e-6, abs=1e-14)


def test_order_does_not_matter_and_more_tables_cost_more() -> None:
    assert LossDistribution.of([1.0, 2.0]).epsilon(1e-5) == LossDistribution.of([2.0, 1.0]).epsilon(1e-5)
    costs = [LossDistribution.of([3.0] * m).epsilon(1e-5) for m in (1, 2, 5, 20)]
    assert costs == sorted(costs)
    assert costs[0] < costs[-1]


def test_no_noise_has_no_epsilon() -> None:
    none = LossDistribution.of([0.0, 3.0])
    assert none.delta(50.0) == 1.0
    assert none.epsilon(0.5) == math.inf


def test_a_delta_that_is_large_needs_no_epsilon() -> None:
    assert LossDistribution.of([100.0]).epsilon(0.9) == 0.0


@pytest.mark.parametrize("sigma", [0.05, 0.3, 0.6, 1.0, 7.5, 40.0])
def test_discrete_gaussian_masses(sigma: float) -> None:
    support, probabilities = discrete_gaussian(sigma)
    reach = int(support[-1])
    assert support.tolist() == list(range(-reach, reach + 1))
    np.testing.assert_allclose(probabilities, masses(sigma, 0, reach), rtol=1e-12)
    assert probabilities.sum() == pytest.approx(1.0, abs=1e-14)
