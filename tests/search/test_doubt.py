"""Doubt: the chance of a better swap in closed form, its calibration, and that wrong errors are found out."""

from __future__ import annotations

import dataclasses
import math

import msgspec
import numpy as np
import pytest
from scipy import stats

from fedwise.errors import FedwiseError
from fedwise.estimation.shrinkage import shrink
from fedwise.estimation.uncertainty import standard_error
from fedwise.objective.pfl import Weights
from fedwise.search import Constraints, select
from fedwise.search.client_errors import client_errors
from fedwise.search.control import Control
from fedwise.search.doubt import DEGREES, doubt, simulate
from fedwise.search.entry import feasible_sizes
from fedwise.search.neighbourhood import Swaps, best_swaps
from fedwise.search.outcome import Outcome
from fedwise.search.paper import paper_bounds
from fedwise.search.problem import PFL, Problem
from search.pools import random_estimates

WEIGHTS = Weights()
CONTROL = Control(threads=1)


def released(exact, sigma, seed):
    """Exact counts with normal noise, denoised."""
    noise = np.random.default_rng([seed, 1]).normal(0, sigma, exact.cells.shape)
    sigmas = np.full(exact.layout.tables, sigma)
    found = shrink(exact.cells + noise, exact.layout, sigmas)
    return dataclasses.replace(
        exact, cells=found.cells, marginals=found.marginals, totals=found.totals, sigmas=sigmas,
        posterior=found.posterior,
    )  # fmt: skip


def swaps_of(estimates, members):
    """All swaps of a federation, best first."""
    limits = feasible_sizes(Constraints(), estimates, (len(members),))[len(members)]
    problem = Problem.of(estimates, PFL(WEIGHTS))
    return best_swaps(problem, limits, np.asarray(members), control=CONTROL, keep=100)


def smaller(posterior, factor):
    """A posterior that is too sure: every variance of a client times `factor`."""
    parts = {
        name: getattr(posterior, name) * factor for name in ("totals", "marginals", "strength", "spread")
    }
    return dataclasses.replace(posterior, **parts)


@pytest.fixture(scope="module")
def noisy():
    return released(random_estimates(12, seed=4, rows=2000), 10.0, 0)


def test_one_swap_in_closed_form():
    # Two errors of 3 and 4, one of them almost 0: Student's t. 2,000 draws: 5 standard errors are at most 0.056.
    rng = np.random.default_rng(0)
    found = simulate([2.0], [3.0, 1e-12], np.array([0]), np.array([1]), rng)
    assert found.chance == pytest.approx(stats.t.cdf(-2.0 / 3.0, DEGREES), abs=0.056)
    assert found.nearest_chance == found.chance
    both = simulate([2.0], [3.0, 4.0], np.array([0]), np.array([1]), rng)
    # A sum of two t is close to normal with their variance: 5² · 10/8.
    assert both.nearest_error == pytest.approx(5.0 * math.sqrt(DEGREES / (DEGREES - 2)))
    assert both.chance == pytest.approx(stats.norm.cdf(-2.0 / both.nearest_error), abs=0.066)
    # E max(−d, 0) of a normal d.
    z = -2.0 / both.nearest_error
    expected = both.nearest_error * (stats.norm.pdf(z) + z * stats.norm.cdf(z))
    assert both.regret == pytest.approx(expected, rel=0.2)


def test_swaps_of_one_client_share_its_error():
    # Ten copies of one swap are one swap; ten independent ones are not.
    rng = np.random.default_rng(1)
    one = simulate([1.0], [1.0, 0.0], np.array([0]), np.array([1]), rng)
    same = simulate([1.0] * 10, [1.0, 0.0], np.zeros(10, int), np.ones(10, int), rng)
    apart = simulate([1.0] * 10, [0.0] + [1.0] * 10, np.zeros(10, int), np.arange(1, 11), rng)
    assert same.chance == pytest.approx(one.chance, abs=0.07)
    assert apart.chance == pytest.approx(1 - stats.t.cdf(1.0, DEGREES) ** 10, abs=0.07)


def test_without_errors_only_what_is_seen_counts():
    rng = np.random.default_rng(2)
    nothing, swap = np.zeros(2), (np.array([0]), np.array([1]))
    assert simulate([0.1], nothing, *swap, rng)[:3] == (0.0, 0.0, 0.0)
    assert simulate([-1e-17], nothing, *swap, rng)[:3] == (0.0, 0.0, 0.0)
    assert simulate([-0.1], nothing, *swap, rng)[:3] == pytest.approx((1.0, 0.1, 0.1))


def calibration(factor: float) -> tuple[float, float, float]:
    """Mean stated chance, true share and covered regret over 400 normal pools, the best three of twelve chosen."""
    rng = np.random.default_rng(3)
    stated, true, covered = [], [], []
    outs, ins = (part.ravel() for part in np.meshgrid(np.arange(3), np.arange(3, 12), indexing="ij"))
    for _ in range(400):
        effects = rng.normal(size=12)
        noise = rng.uniform(0.05, 0.5, size=12)
        keep = 1.0 / (1.0 + noise**2)
        means = keep * (effects + noise * rng.normal(size=12))
        order = np.argsort(means)
        m, e, errors = means[order], effects[order], noise[order] * np.sqrt(keep[order]) * factor
        found = simulate(m[ins] - m[outs], errors, outs, ins, rng)
        regret = max(0.0, float(e[:3].max() - e[3:].min()))
        stated.append(found.chance)
        true.append(regret > 0)
        covered.append(regret <= found.regret_bound)
    return float(np.mean(stated)), float(np.mean(true)), float(np.mean(covered))


def test_chances_are_calibrated_though_the_best_was_chosen():
    """Standard error of the mean at most 0.025: four of them and 0.02 for the wider tails; false alarm 1 in 10,000."""
    stated, true, covered = calibration(1.0)
    assert stated == pytest.approx(true, abs=0.12)
    # 400 regrets: four standard errors of 90% are 6%.
    assert 0.84 <= covered <= 1.0


@pytest.mark.parametrize("wrong", [0.4, 3.0])
def test_wrong_errors_are_found_out(wrong):
    stated, true, _ = calibration(wrong)
    assert abs(stated - true) > 0.12


def test_selections_of_synthetic_pools_are_calibrated():
    """The whole way, 60 pools: a standard error of at most 0.06, so 0.25 is four of them; false alarm 1 in 10,000."""
    stated, true, too_sure = [], [], []
    for seed in range(60):
        exact = random_estimates(14, seed=seed, rows=2000)
        noisy = released(exact, 16.0, seed)
        chosen = select(noisy, 4, method="greedy-exchange", evidence="none", seed=seed, threads=1)
        members = tuple(sorted(noisy.clients.index(client) for client in chosen.clients))
        outcome, swaps = Outcome(members, chosen.loss), swaps_of(noisy, members)
        stated.append(doubt(noisy, outcome, swaps, WEIGHTS, seed=seed).chance)
        true.append(swaps_of(exact, members).losses[0] < Problem.of(exact, PFL(WEIGHTS)).loss(members))
        sure = dataclasses.replace(noisy, posterior=smaller(noisy.posterior, 0.01))
        too_sure.append(doubt(sure, outcome, swaps, WEIGHTS, seed=seed).chance)
    assert np.mean(stated) == pytest.approx(np.mean(true), abs=0.25)
    assert np.mean(true) - np.mean(too_sure) > 0.25


def test_client_errors_are_the_clients_part_of_the_standard_error(noisy):
    """With records and marginals alone uncertain, members' errors add up to the standard error, squared."""
    nothing = {
        name: np.zeros_like(getattr(noisy.posterior, name))
        for name in ("strength", "spread", "pool_strength", "pool_cells", "gap")
    }
    posterior = dataclasses.replace(noisy.posterior, **nothing)
    estimates = dataclasses.replace(noisy, posterior=posterior)
    members = np.array([1, 4, 7])
    errors = client_errors(estimates, posterior, members, members, WEIGHTS)
    assert math.sqrt(np.sum(errors**2)) == pytest.approx(
        standard_error(estimates, members, WEIGHTS), rel=1e-6
    )
    # Interactions add to it, for each client by itself.
    more = client_errors(noisy, noisy.posterior, members, np.arange(12), WEIGHTS)
    assert np.all(more[members] > errors)


def test_a_selection_states_its_doubt(noisy):
    selection = select(noisy, 4, seed=2)
    certificate = selection.certificate
    assert certificate.swaps == 4 * 8
    assert 0.0 < certificate.neighbour_chance <= certificate.swap_chance < 1.0
    assert 0.0 < certificate.regret < certificate.regret_bound
    assert "Some single swap is truly better" in certificate.noise_statement
    leaves, joins = certificate.best_swap
    swapped = (set(selection.clients) - {leaves}) | {joins}
    positions = sorted(noisy.clients.index(client) for client in swapped)
    best = Problem.of(noisy, PFL(WEIGHTS)).loss(positions)
    assert certificate.gap == pytest.approx(best - selection.loss)
    assert certificate.mu is None
    assert select(noisy, 4, seed=2).certificate == certificate


def test_only_allowed_swaps_count(noisy):
    free = select(noisy, 4, seed=2)
    bound = select(noisy, 4, seed=2, constraints=Constraints(include=free.clients[:3], exclude=()))
    assert bound.clients == free.clients
    assert bound.certificate.swaps == 8
    assert bound.certificate.swap_chance < free.certificate.swap_chance


def test_no_swap_no_doubt(noisy):
    selection = select(noisy, 12)
    assert selection.certificate.swap_chance is None
    assert "No other federation is one swap away" in selection.certificate.noise_statement


def test_plain_estimates_have_no_posterior(noisy):
    plain = random_estimates(8, seed=4, sigma=5.0, plain=True)
    certificate = select(plain, 3).certificate
    assert certificate.swap_chance is None
    assert "not known for 'plain' estimates" in certificate.noise_statement
    swaps = Swaps(np.array([1.0]), np.array([0]), np.array([5]), 1, True)
    assert doubt(plain, Outcome((0, 1, 2), 0.0), swaps, WEIGHTS, seed=0) is None


def test_exact_tables_leave_nothing_open():
    certificate = select(random_estimates(8, seed=4), 3).certificate
    assert (certificate.swap_chance, certificate.regret) == (0.0, 0.0)
    assert "no noise" in certificate.noise_statement
    assert "nothing is private" in certificate.noise_statement


def test_bounds_on_request_keep_what_was_measured(noisy):
    selection = select(noisy, 4, seed=2)
    bounded = paper_bounds(noisy, selection)
    assert bounded.swap_chance == selection.certificate.swap_chance
    assert bounded.left_open == selection.certificate.left_open
    assert selection.certificate.paper == ()
    assert bounded.paper[-1].startswith("global bound")
    with pytest.raises(FedwiseError, match="pool must hold the selected clients, got none named 'c"):
        paper_bounds(random_estimates(1), selection)
    with pytest.raises(FedwiseError, match="objective must be the paper's loss for its bounds, got 'mine'"):
        paper_bounds(noisy, msgspec.structs.replace(selection, objective="mine"))
