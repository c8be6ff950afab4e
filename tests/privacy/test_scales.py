"""Calibration: the paper's two columns, inverses, and the promise checked by an independent accountant."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.stats import norm

import fedwise as fw
from conftest import SMALL
from fedwise.data import schema as shipped
from fedwise.errors import PlanError
from fedwise.privacy.accounting import LossDistribution
from fedwise.privacy.scales import (
    calibrate,
    check_promise,
    covers,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    rdp_scale,
    round_up,
    tight_scale,
)

# M tables, the Rényi closed form and the tight one at epsilon 1, delta 1e-5.
COLUMNS = [
    (15, 18.98, 14.45),
    (55, 36.34, 27.67),
    (66, 39.81, 30.31),
    (153, 60.62, 46.15),
    (210, 71.02, 54.06),
    (465, 105.67, 80.45),
    (1275, 174.98, 133.21),
]
PROMISES = [
    (e, d) for e in (1e-3, 0.1, 0.5, 1.0, 2.0, 5.0, 20.0, 100.0) for d in (1e-12, 1e-9, 1e-5, 1e-2, 0.5)
]


def pld_epsilon(sigmas: np.ndarray, delta: float, interval: float, *, times: int = 1) -> float:
    """Epsilon of discrete Gaussian tables, composed one by one in dp-accounting (rounding up)."""
    total = None
    for sigma, count in Counter(sigmas.tolist()).items():
        one = pld.from_discrete_gaussian_mechanism(sigma, value_discretization_interval=interval)
        some = one.self_compose(count * times) if count * times > 1 else one
        total = some if total is None else total.compose(some)
    assert total is not None
    return float(total.get_epsilon_for_delta(delta))


@pytest.mark.parametrize(("tables", "rdp", "tight"), COLUMNS)
def test_both_columns_of_the_paper(tables: int, rdp: float, tight: float) -> None:
    assert abs(math.sqrt(tables) * rdp_scale(1.0, 1e-5) - rdp) <= 0.01
    assert abs(math.sqrt(tables) * tight_scale(1.0, 1e-5) - tight) <= 0.01
    even = np.full(tables, 1 / tables)
    sigmas, _ = calibrate(1.0, 1e-5, even)
    assert 1.0 <= sigmas[0] / (math.sqrt(tables) * tight_scale(1.0, 1e-5)) <= 1.003
    assert sigmas[0] / tight <= 1.003
    paper, _ = calibrate(1.0, 1e-5, even, calibration="rdp")
    assert abs(paper[0] - rdp) <= 0.01


@pytest.mark.parametrize(("epsilon", "gain"), [(0.1, 1.56), (1.0, 1.31), (5.0, 1.18)])
def test_gain_over_the_paper(epsilon: float, gain: float) -> None:
    assert rdp_scale(epsilon, 1e-5) / tight_scale(epsilon, 1e-5) == pytest.approx(gain, abs=0.01)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.1, 1e-5), (1.0, 1e-5), (1.0, 1e-9), (5.0, 1e-3), (20.0, 1e-5)]
)
@pytest.mark.parametrize("tables", [1, 55])
def test_closed_form_minimises_the_renyi_bound(epsilon: float, delta: float, tables: int) -> None:
    sigma = math.sqrt(tables) * rdp_scale(epsilon, delta)

    def bound(log_order: float) -> float:
        order = 1 + math.exp(log_order)
        return tables * order / (2 * sigma**2) + math.log(1 / delta) / (order - 1)

    least = minimize_scalar(bound, bounds=(-10, 20), method="bounded", options={"xatol": 1e-10})
    assert least.fun == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize(
    ("mu", "epsilon"), [(0.1, 0.0), (0.1, 0.3), (1.0, 0.5), (1.0, 3.0), (3.0, 1.0), (0.5, -0.4)]
)
def test_gaussian_delta_is_the_hockey_stick(mu: float, epsilon: float) -> None:
    """∫ (p − e^ε q)₊ by quadrature; the integrand is positive above the crossing ε/μ + μ/2."""
    above = epsilon / mu + mu / 2
    integral, _ = quad(lambda z: norm.pdf(z - mu) - math.exp(epsilon) * norm.pdf(z), above, above + 40)
    assert gaussian_delta(mu, epsilon) == pytest.approx(integral, rel=1e-7)


@pytest.mark.parametrize(("epsilon", "delta"), PROMISES)
def test_mu_and_epsilon_are_inverse_and_round_toward_privacy(epsilon: float, delta: float) -> None:
    mu = gaussian_mu(epsilon, delta)
    assert gaussian_epsilon(mu, delta) == pytest.approx(epsilon, rel=1e-9, abs=1e-12)
    assert gaussian_delta(mu, epsilon) <= delta
    assert gaussian_delta(mu * (1 + 1e-6), epsilon) > delta
    # And the other way round: sigma(epsilon(sigma)) = sigma.
    assert tight_scale(gaussian_epsilon(mu, delta), delta) == pytest.approx(1 / mu, rel=1e-9)


def test_mu_and_epsilon_at_the_ends() -> None:
    assert gaussian_delta(0.0, 1.0) == 0.0
    assert gaussian_epsilon(math.inf, 1e-5) == math.inf
    assert gaussian_epsilon(1e-9, 1e-5) == 0.0
    assert gaussian_epsilon(100.0, 1e-5) == pytest.approx(100**2 / 2 + 100 * 4.2649, rel=0.01)


@pytest.mark.parametrize("calibration", ["tight", "rdp"])
@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.1, 1e-5), (1.0, 1e-5), (1.0, 1e-9), (5.0, 1e-5), (20.0, 1e-3)]
)
def test_uneven_shares_cost_what_even_ones_do(epsilon: float, delta: float, calibration: str) -> None:
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.ones(20)) * 0.9 + 0.1 / 20
    sigmas, mu = calibrate(epsilon, delta, shares, calibration=calibration)
    even, even_mu = calibrate(epsilon, delta, np.full(20, 0.05), calibration=calibration)
    assert np.sum(sigmas**-2.0) == pytest.approx(np.sum(even**-2.0), rel=1e-3)
    # With little noise the shares shape the lattice of losses, and so the μ that covers it.
    assert mu == pytest.approx(even_mu, rel=1e-3 if epsilon <= 5 else 1e-2)
    np.testing.assert_allclose(sigmas**-2.0 / np.sum(sigmas**-2.0), shares, rtol=1e-4)


# The accountant's grid: fine enough for 1%, coarse enough for seconds. It rounds losses up, so ε is an upper bound.
@pytest.mark.parametrize("allocation", ["uniform", "weighted"])
@pytest.mark.parametrize(("epsilon", "interval"), [(0.1, 1e-5), (1.0, 5e-5), (5.0, 2e-4)])
def test_plan_keeps_its_promise_in_an_independent_accountant(
    epsilon: float, interval: float, allocation: str
) -> None:
    plan = fw.plan(shipped("income"), epsilon, allocation=allocation)
    spent = pld_epsilon(plan.sigmas, plan.delta, interval)
    assert len(plan.tables) == 55
    assert 0.99 * epsilon <= spent <= epsilon


@pytest.mark.parametrize("allocation", ["uniform", "weighted"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_small_plan_keeps_its_promise_in_an_independent_accountant(epsilon: float, allocation: str) -> None:
    plan = fw.plan(fw.Schema.parse(SMALL), epsilon, allocation=allocation)
    spent = pld_epsilon(plan.sigmas, plan.delta, {0.1: 1e-5, 1.0: 5e-5, 5.0: 2e-4}[epsilon])
    assert 0.99 * epsilon <= spent <= epsilon


def test_finest_grid_of_the_issue() -> None:
    plan = fw.plan(shipped("income"), 1.0, allocation="uniform")
    assert 0.99 <= pld_epsilon(plan.sigmas, 1e-5, 1e-5) <= 1.0


def test_accountant_catches_less_noise() -> None:
    plan = fw.plan(fw.Schema.parse(SMALL), 1.0)
    assert pld_epsilon(plan.sigmas / 1.01, 1e-5, 5e-5) > 1.0


def test_paper_calibration_keeps_its_promise() -> None:
    plan = fw.plan(fw.Schema.parse(SMALL), 1.0, calibration="rdp", allocation="uniform")
    assert pld_epsilon(plan.sigmas, 1e-5, 1e-4) < 0.8


def one_table(epsilon: float) -> fw.Plan:
    text = '[columns.A]\nrole = "feature"\nlevels = [0, 1]\n[columns.T]\nrole = "target"\nlevels = [0, 1]\n'
    return fw.plan(fw.Schema.parse(text), epsilon)


@pytest.mark.parametrize("epsilon", [1.0, 5.0])
def test_mu_covers_repeated_releases_at_every_delta(epsilon: float) -> None:
    """One table with little noise sits on a coarse lattice: the place where composing by μ could go wrong."""
    plan = one_table(epsilon)
    for times in (1, 2, 3, 7):
        for delta in (1e-2, 1e-4, 1e-6, 1e-9):
            real = pld_epsilon(plan.sigmas, delta, 5e-4 if epsilon < 5 else 2e-3, times=times)
            assert real <= gaussian_epsilon(plan.mu * math.sqrt(times), delta) * (1 + 1e-9)


def test_mu_of_the_closed_formula_would_not_cover() -> None:
    # The test above can fail: the continuous μ, even with the headroom on σ, says too little.
    plan = one_table(5.0)
    naive = 1.003 / float(plan.sigmas[0])
    assert pld_epsilon(plan.sigmas, 1e-2, 1e-3) > 1.02 * gaussian_epsilon(naive, 1e-2)
    losses = LossDistribution.of(plan.sigmas)
    assert covers(plan.mu, losses)
    assert not covers(naive, losses)


@given(st.lists(st.floats(1e-6, 1e9), min_size=1, max_size=20), st.integers(3, 9))
def test_round_up_never_rounds_down(values: list[float], digits: int) -> None:
    array = np.array(values)
    rounded = round_up(array, digits=digits)
    assert (rounded >= array).all()
    assert (rounded <= array * (1 + 1.0001 * 10.0 ** (1 - digits))).all()


def test_infinite_epsilon_means_no_noise_and_no_mu() -> None:
    sigmas, mu = calibrate(math.inf, 1e-5, np.full(3, 1 / 3))
    assert sigmas.tolist() == [0, 0, 0]
    assert mu == math.inf


@pytest.mark.parametrize(
    ("epsilon", "delta", "message"),
    [
        (0.0, 1e-5, "epsilon must be above 0, got 0"),
        (-1.0, 1e-5, "epsilon must be above 0, got -1"),
        (-math.inf, 1e-5, "epsilon must be above 0"),
        (math.nan, 1e-5, "epsilon must be above 0"),
        (1e-5, 1e-5, "at least 0.0001"),
        (101.0, 1e-5, "at most 100"),
        (1.0, 0.0, "delta must lie between 0 and 1"),
        (1.0, 1.0, "delta must lie between 0 and 1"),
        (1.0, -0.1, "delta must lie between 0 and 1"),
        (1.0, math.nan, "delta must lie between 0 and 1"),
        (1.0, 1e-13, "at least 1e-12"),
        (math.inf, 2.0, "delta must lie between 0 and 1"),
    ],
)
def test_promises_that_mean_nothing(epsilon: float, delta: float, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        check_promise(epsilon, delta)
    with pytest.raises(PlanError):
        calibrate(epsilon, delta, np.ones(1))


def test_unknown_calibration() -> None:
    with pytest.raises(PlanError, match="must be tight or rdp"):
        calibrate(1.0, 1e-5, np.ones(1), calibration="loose")
