"""Accounting: the composed loss against brute force over outcomes and against dp-accounting."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.fft import next_fast_len
from scipy.optimize import brentq

from fedwise.privacy.accounting import (
    LossDistribution,
    discrete_curve,
    discrete_gaussian,
    fast_length,
    gaussian_curve,
)
from fedwise.privacy.judgement import EXACT_BELOW, LATTICE
from fedwise.privacy.scales import gaussian_delta, gaussian_epsilon


def test_lengths_are_those_of_the_fastest_transforms() -> None:
    lengths = [*range(1, 400), *range(9_990, 10_010), 123_457, 10**6 + 1]
    assert [fast_length(n) for n in lengths] == [next_fast_len(n, real=True) for n in lengths]


@cache
def masses(sigma: float, shift: int, reach: int) -> np.ndarray:
    """Probability of each integer in [-reach, reach] under noise of scale sigma around shift, in plain Python."""
    density = [math.exp(-((z - shift) ** 2) / (2 * sigma**2)) for z in range(-reach, reach + 1)]
    made = np.array(density) / math.fsum(
        math.exp(-(z**2) / (2 * sigma**2)) for z in range(-2 * reach, 2 * reach + 1)
    )
    made.setflags(write=False)  # every caller gets the same array
    return made


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


MIXTURES = [
    ([0.34], 0.18),  # a coarse lattice, blurred
    ([0.34], 0.003),  # far below the step of the grid
    ([0.34], 1e-9),  # next to nothing
    ([1.0, 2.5], 0.3),
    ([20.0], 0.002),
    ([1999.0], 5e-4),  # as much again in the fine tables as in the coarse one
    ([1999.0], 0.05),  # a hundred times as much
]


def mixed_delta(sigmas: list[float], mu: float, epsilon: float) -> float:
    """δ of discrete tables beside a continuous Gaussian: the Gaussian's own δ at what each outcome leaves of ε."""
    chance, loss = np.ones(1), np.zeros(1)
    for sigma in sigmas:
        reach = math.ceil(9 * sigma) + 3
        z = np.arange(-reach, reach + 1)
        chance = np.outer(chance, masses(sigma, 0, reach)).ravel()
        loss = np.add.outer(loss, (2 * z + 1) / (2 * sigma**2)).ravel()
    return float(chance @ gaussian_curve(mu, epsilon - loss))


@pytest.mark.parametrize(("sigmas", "mu"), MIXTURES, ids=str)
def test_discrete_tables_beside_a_gaussian_against_brute_force(sigmas: list[float], mu: float) -> None:
    ours = LossDistribution.of(sigmas, gaussian=mu)
    spread = math.sqrt(sum(sigma**-2.0 for sigma in sigmas) + mu**2)
    seen = 0
    for epsilon in np.linspace(0.0, 8 * spread + spread**2, 200):
        exact = mixed_delta(sigmas, mu, float(epsilon))
        if exact > 1e-12:
            seen += 1
            assert ours.delta(float(epsilon)) >= exact * (1 - 1e-7)
    assert seen > 50
    for delta in (1e-9, 1e-5):
        true = float(brentq(lambda e, d=delta: mixed_delta(sigmas, mu, e) - d, 0.0, 20 * spread + spread**2))
        assert true * (1 - 1e-7) <= ours.epsilon(delta) <= true * 1.01 + 1e-9


@pytest.mark.parametrize(("sigmas", "mu"), [([1.0, 2.5], 0.3), ([0.34], 0.18)], ids=str)
def test_discrete_tables_beside_a_gaussian_against_dp_accounting(sigmas: list[float], mu: float) -> None:
    total = pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=1e-4)
    for sigma in sigmas:
        total = total.compose(pld.from_discrete_gaussian_mechanism(sigma, value_discretization_interval=1e-4))
    ours = LossDistribution.of(sigmas, gaussian=mu)
    for delta in (1e-8, 1e-5, 1e-2):
        assert ours.epsilon(delta) == pytest.approx(total.get_epsilon_for_delta(delta), rel=4e-3)


def test_a_gaussian_of_no_weight_changes_nothing() -> None:
    alone, beside = LossDistribution.of([1.0, 2.0]), LossDistribution.of([1.0, 2.0], gaussian=0.0)
    np.testing.assert_array_equal(alone.probabilities, beside.probabilities)


@pytest.mark.parametrize("sigma", [EXACT_BELOW, 5000.0, 20000.0])
def test_a_fine_lattice_is_a_gaussian_with_a_little_more_mu(sigma: float) -> None:
    epsilons = np.linspace(-7 / sigma, 7 / sigma, 2001)
    discrete = discrete_curve(sigma, epsilons)
    seen = discrete > 1e-14
    assert seen.sum() > 1500
    enlarged = gaussian_curve((1 + LATTICE) / sigma, epsilons)
    assert (enlarged[seen] >= discrete[seen] * (1 - 1e-11)).all()
    # Without the enlargement the closed formula is too kind, if only by parts per million.
    assert (gaussian_curve(1 / sigma, epsilons)[seen] < discrete[seen] * (1 - 1e-9)).any()


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
