"""Bounds on μ: they are bounds, they have power, and the smallest detectable fault is what is said."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from fedwise.auditing.gaussian import mu_bound, mu_bound_of_auc, separation, smallest_detectable
from fedwise.auditing.rates import epsilon_lower_bound
from fedwise.privacy.scales import gaussian_mu


@pytest.mark.parametrize("risk", [1e-2, 1e-4, 1e-7])
@pytest.mark.parametrize("apart", [0.3, 1.0, 4.0, 8.0])
@pytest.mark.parametrize("n", [50, 100, 1000])
def test_the_bound_lies_below_the_exact_one_and_close(risk: float, apart: float, n: int) -> None:
    """Scores whose t is the quantile of noncentral t: the exact bound is the separation itself."""
    unit = math.sqrt(2 / n)
    t = stats.nct.isf(risk, 2 * n - 2, apart / unit)
    shape = stats.norm.ppf((np.arange(n) + 0.5) / n)
    shape /= math.sqrt((shape**2).sum() / (n - 1))
    assert separation(shape + t * unit, shape) == pytest.approx(t * unit)
    found = mu_bound(shape + t * unit, shape, risk)
    assert found <= apart
    assert found >= apart * (0.95 if n < 100 else 0.98)


@pytest.mark.parametrize("bound", [mu_bound, mu_bound_of_auc])
@pytest.mark.parametrize(("mu", "copies"), [(0.27, 1), (0.27, 15), (1.1, 4)])
def test_bounds_rarely_exceed_the_truth(bound: object, mu: float, copies: int) -> None:
    """1000 honest audits at risk 1%: more than 27 bounds above the truth has probability below 1e-5 (seeded)."""
    rng = np.random.default_rng(1)
    above = 0
    for _ in range(1000):
        inside, outside = rng.normal(copies * mu, 1, 100), rng.normal(0, 1, 100)
        above += bound(inside, outside, 0.01, copies=copies) > mu  # type: ignore[operator]
    assert above <= 27
    assert stats.binom.sf(27, 1000, 0.01) < 1e-5


def test_the_smallest_detectable_fault_is_found_in_nine_audits_of_ten() -> None:
    """400 audits each of several designs: a rate of 0.9 is within 0.06 (4 standard errors, seeded)."""
    rng = np.random.default_rng(2)
    for mu, copies, n, risk in ((0.267, 30, 100, 3e-5), (0.267, 1, 1500, 0.01), (1.1, 4, 100, 1e-3)):
        factor = smallest_detectable(mu, mu * 1.003, inside=n, outside=n, risk=risk, copies=copies)
        found = sum(
            mu_bound(
                rng.normal(copies * factor * mu, 1, n), rng.normal(0, 1, n), risk, copies=copies
            )
            > mu * 1.003
            for _ in range(400)
        )  # fmt: skip
        assert abs(found / 400 - 0.9) < 0.06, (mu, copies)


def test_noise_too_small_by_half_is_found_at_epsilon_one_and_the_old_bound_does_not() -> None:
    """At ε=1 with noise divided by 1.5: at least 90% of 300 audits; honest ones at most 1% (seeded)."""
    rng = np.random.default_rng(3)
    promised = gaussian_mu(1.0, 1e-5)
    copies, n, risk = math.ceil(8 / promised), 100, 0.001 / 30

    def share(factor: float) -> float:
        hits = 0
        for _ in range(300):
            inside, outside = rng.normal(copies * factor * promised, 1, n), rng.normal(0, 1, n)
            hits += mu_bound(inside, outside, risk, copies=copies) > promised
        return hits / 300

    assert share(1.5) >= 0.9
    assert share(1.0) <= 0.01
    # The bound without assumptions, with ten times as many scores and noise four times too small.
    old = sum(
        epsilon_lower_bound(rng.normal(4 * promised, 1, 1000), rng.normal(0, 1, 1000), delta=1e-5) > 1.0
        for _ in range(100)
    )
    assert old <= 20


def test_ends() -> None:
    zero, one = np.zeros(50), np.ones(50)
    assert separation(zero, zero) == 0.0
    assert separation(one, zero) == 1000.0  # no noise at all, and still a number
    assert mu_bound(zero, one, 0.01) == 0.0
    assert mu_bound_of_auc(zero, one, 0.01) == 0.0
    assert mu_bound_of_auc(zero, zero, 0.01) == 0.0  # ties count as half
    assert mu_bound(one, zero, 0.01) > 100
    assert math.isinf(smallest_detectable(0.3, 0.3, inside=3, outside=3, risk=1e-6))
