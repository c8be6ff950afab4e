"""The audit agrees with theory, stays under the promise, and catches broken mechanisms."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import polars as pl
import pytest
from scipy.stats import norm

import fedwise as fw
from fedwise.auditing.audit import audit
from fedwise.auditing.rates import auc, auc_theory, epsilon_lower_bound, tpr_theory
from fedwise.owner.noise import NoisyCounts, add_noise
from fedwise.owner.tables import Tables

PAPER = {"calibration": "rdp", "allocation": "uniform"}


@pytest.mark.parametrize(
    ("epsilon", "expected"), [(0.1, 0.506), (0.5, 0.529), (1, 0.557), (2, 0.611), (5, 0.749)]
)
def test_theory_gives_the_paper_scale_figures(
    small_schema: fw.Schema, epsilon: float, expected: float
) -> None:
    plan = fw.plan(small_schema, epsilon, delta=1e-5, calibration="rdp", allocation="uniform")
    mu = np.array([math.sqrt(np.sum(plan.sigmas**-2.0))])
    assert auc_theory(mu) == pytest.approx(expected, abs=5e-4)
    assert auc_theory(mu) == pytest.approx(norm.cdf(mu[0] / math.sqrt(2)))
    assert tpr_theory(mu, 0.01) == pytest.approx(norm.cdf(norm.ppf(0.01) + mu[0]))


def test_theory_of_a_mixture_against_simulation() -> None:
    rng = np.random.default_rng(3)
    mu = np.array([0.2, 0.8, 1.5])
    pick_in, pick_out = mu[rng.integers(0, 3, 200_000)], mu[rng.integers(0, 3, 200_000)]
    inside = rng.normal(pick_in**2 / 2, pick_in)
    outside = rng.normal(-(pick_out**2) / 2, pick_out)
    area, error = auc(inside, outside)
    assert abs(area - auc_theory(mu)) < 5 * error
    assert tpr_theory(mu, 0.01) == pytest.approx(np.mean(inside > np.quantile(outside, 0.99)), abs=0.01)


@pytest.mark.parametrize(
    ("mode", "epsilon", "attack"), list(product([{}, PAPER], [0.1, 0.5, 1, 2, 5], ["single", "joint"]))
)
def test_attack_matches_theory(
    small_schema: fw.Schema, people: pl.DataFrame, mode: dict[str, str], epsilon: float, attack: str
) -> None:
    """20 comparisons at 4.5 standard errors: a false alarm in about 1 of 7,000 runs."""
    plan = fw.plan(small_schema, epsilon, delta=1e-5, **mode)
    found = audit(plan, people, attack=attack, trials=1000)
    assert abs(found.auc - found.auc_theory) < 4.5 * found.auc_std_error
    assert found.epsilon_lower_bound <= epsilon
    assert found.ok


def test_lower_bound_rarely_exceeds_the_truth() -> None:
    """400 audits of an exact Gaussian at confidence 0.95: more than 36 failures has probability below 1e-3."""
    rng = np.random.default_rng(0)
    mu = 1.0  # (ε, δ) of a unit Gaussian at δ = 1e-3: the bound must respect it
    from fedwise.privacy.scales import gaussian_epsilon

    truth = gaussian_epsilon(mu, 1e-3)
    failures = sum(
        epsilon_lower_bound(
            rng.normal(mu**2 / 2, mu, 600), rng.normal(-(mu**2) / 2, mu, 600), delta=1e-3, confidence=0.95
        )
        > truth
        for _ in range(400)
    )
    assert failures <= 36


def _weak(tables: Tables, sigmas: np.ndarray) -> NoisyCounts:
    return add_noise(tables, sigmas / 2)


def _leaky(tables: Tables, sigmas: np.ndarray) -> NoisyCounts:
    noisy = np.asarray(add_noise(tables, sigmas)).copy()
    here = tables.layout.slice(0)
    noisy[here] = tables.exact[here]  # one table leaves without noise
    return NoisyCounts(noisy)


@pytest.mark.parametrize("broken", [_weak, _leaky])
def test_broken_mechanisms_are_caught(small_schema: fw.Schema, people: pl.DataFrame, broken: object) -> None:
    plan = fw.plan(small_schema, 1.0, delta=1e-5)
    assert not audit(plan, people, attack="joint", trials=2000, mechanism=broken).ok


def test_unusable_audits_say_why(small_schema: fw.Schema, people: pl.DataFrame) -> None:
    plan = fw.plan(small_schema, 1.0, delta=1e-5)
    with pytest.raises(fw.FedwiseError, match="at least 100"):
        audit(plan, people, trials=5)
    with pytest.raises(fw.FedwiseError, match="at least one row"):
        audit(plan, people.head(0))
    with pytest.raises(fw.FedwiseError, match="finite epsilon"):
        audit(fw.plan(small_schema, math.inf, delta=1e-5), people)


@pytest.mark.soak
def test_two_hundred_audits_never_contradict_the_promise(
    small_schema: fw.Schema, people: pl.DataFrame
) -> None:
    """200 audits over budgets, modes and attacks at confidence 0.999 each: the ε bound never passes the promise.

    An honest mechanism fails one audit with probability at most 0.001, so all 200 pass with at least 0.81; in
    truth far more often, because Clopper–Pearson and the choice of threshold are conservative.
    """
    grid = list(product([{}, PAPER], [0.1, 0.5, 1, 2, 5], ["single", "joint"]))
    for number in range(200):
        mode, epsilon, attack = grid[number % len(grid)]
        found = audit(fw.plan(small_schema, epsilon, **mode), people, attack=attack, trials=500, seed=number)
        assert found.epsilon_lower_bound <= epsilon, (number, mode, epsilon, attack)
