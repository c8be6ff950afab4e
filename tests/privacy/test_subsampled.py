"""The accountant of training: against closed forms, two independent accountants, and brute force."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from scipy.stats import norm

from fedwise.errors import PlanError
from fedwise.privacy.scales import gaussian_delta, gaussian_epsilon
from fedwise.privacy.subsampled import STEP, Steps, compose, epsilon, scale_noise

pytestmark = pytest.mark.slow

#: noise, rate, steps, μ of a release beside them
GRID = [
    (1.1, 0.05, 100, 0.0),
    (1.0, 0.01, 1000, 0.0),
    (0.7, 0.02, 300, 0.0),
    (2.0, 0.1, 500, 0.3),
    (5.0, 1.0, 20, 0.0),
    (10.0, 0.5, 200, 0.27),
    (0.5, 0.3, 3, 1.0),
]


@pytest.mark.parametrize(("noise", "rate", "number", "mu"), GRID)
def test_dp_accounting_agrees(noise: float, rate: float, number: int, mu: float) -> None:
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    other = PLDAccountant()
    other.compose(dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise)), number)
    if mu:
        other.compose(dp_accounting.GaussianDpEvent(1 / mu))
    theirs = other.get_epsilon(1e-5)
    ours = epsilon([Steps(noise, rate, number)], 1e-5, mu=mu)
    # Both round up; theirs on a fixed grid of 1e-4, ours on one that follows the losses.
    assert theirs * (1 - 1e-3) <= ours <= theirs * (1 + 2e-3)


def test_opacus_agrees() -> None:
    from opacus.accountants import PRVAccountant

    other = PRVAccountant()
    other.history = [(1.1, 0.05, 100), (1 / 0.3, 1.0, 1)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = other.get_epsilon(1e-5, eps_error=0.001)
    ours = epsilon([Steps(1.1, 0.05, 100)], 1e-5, mu=0.3)
    assert ours == pytest.approx(theirs, rel=2e-3)


@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-9])
def test_a_release_alone_is_the_gaussian_formula(mu: float, delta: float) -> None:
    assert epsilon([], delta, mu=mu) == pytest.approx(gaussian_epsilon(mu, delta), rel=2e-3)
    assert epsilon([], delta, mu=mu) >= gaussian_epsilon(mu, delta) * (1 - 1e-9)


def test_steps_at_rate_one_are_one_gaussian() -> None:
    ours = epsilon([Steps(8.0, 1.0, 9), Steps(4.0, 1.0, 2)], 1e-5, mu=0.2)
    whole = math.sqrt(9 / 64 + 2 / 16 + 0.04)
    assert ours == pytest.approx(gaussian_epsilon(whole, 1e-5), rel=2e-3)
    assert ours >= gaussian_epsilon(whole, 1e-5) * (1 - 1e-9)


@pytest.mark.parametrize("removing", [True, False])
@pytest.mark.parametrize(("noise", "rate"), [(1.0, 0.1), (0.6, 0.5), (3.0, 0.02), (2.0, 1.0)])
def test_one_step_by_integration(noise: float, rate: float, removing: bool) -> None:
    """δ(ε) = ∫ (p − e^ε q)₊ dx, by a fine sum."""
    x = np.linspace(-12 * noise, 1 + 12 * noise, 2_000_001)
    absent = norm.pdf(x, scale=noise)
    present = (1 - rate) * absent + rate * norm.pdf(x - 1, scale=noise)
    p, q = (present, absent) if removing else (absent, present)
    found = compose([Steps(noise, rate, 1)], removing=removing)
    for at in (0.0, 0.01, 0.1, 0.5):
        exact = float(np.sum(np.maximum(p - math.exp(at) * q, 0.0)) * (x[1] - x[0]))
        assert exact - 1e-9 <= found.delta(at) <= exact + 0.3 * STEP * rate / noise + 1e-9


def test_more_noise_fewer_steps_and_smaller_batches_cost_less() -> None:
    base = epsilon([Steps(1.0, 0.05, 100)], 1e-5)
    assert epsilon([Steps(1.2, 0.05, 100)], 1e-5) < base
    assert epsilon([Steps(1.0, 0.04, 100)], 1e-5) < base
    assert epsilon([Steps(1.0, 0.05, 90)], 1e-5) < base < epsilon([Steps(1.0, 0.05, 100)], 1e-5, mu=0.1)


@pytest.mark.parametrize("target", [0.1, 0.5, 1.0, 4.0, 20.0])
@pytest.mark.parametrize(("rate", "number"), [(0.004, 12500), (0.2, 10), (1.0, 50)])
def test_noise_for_is_the_inverse(target: float, rate: float, number: int) -> None:
    noise = scale_noise(target, 1e-5, rate, number)
    assert 0.98 * target <= epsilon([Steps(noise, rate, number)], 1e-5) <= target


@pytest.mark.parametrize("target", [math.nan, math.inf, 0.0, -1.0])
def test_promises_nobody_can_keep(target: float) -> None:
    with pytest.raises(PlanError, match="training epsilon"):
        scale_noise(target, 1e-5, 0.1, 100)


def test_no_noise_is_no_promise_and_nothing_costs_nothing() -> None:
    assert epsilon([Steps(0.0, 0.1, 3)], 1e-5) == math.inf
    assert epsilon([Steps(1.0, 0.1, 0)], 1e-5) == 0.0
    assert epsilon([], 1e-5) == 0.0
    assert gaussian_delta(0.0, 1.0) == 0.0
