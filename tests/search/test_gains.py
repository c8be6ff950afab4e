"""Gains: the expected gain in closed form, the margins behind it, and that a shortlist of a given size asks by it."""

from __future__ import annotations

import dataclasses
from itertools import product

import numpy as np
import pytest

import fedwise as fw
from conftest import make_people
from fedwise.estimation.estimates import Estimates
from fedwise.estimation.shrinkage import shrink
from fedwise.objective.balance import Balance
from fedwise.search.client_errors import client_errors, known_share
from fedwise.search.constraints import Constraints
from fedwise.search.control import Control
from fedwise.search.entry import feasible_sizes
from fedwise.search.gains import expected_gain, gains
from fedwise.search.margins import margins
from fedwise.search.problem import PFL, Problem
from search.pools import random_estimates

WEIGHTS = fw.Weights()
CONTROL = Control(threads=1)
CLIENTS = tuple("abcdefghij")


def test_expected_gain_is_the_mean_of_what_lies_below_zero() -> None:
    margin = np.array([-0.3, 0.0, 0.1, 0.5, 3.0])
    spread = np.array([0.1, 0.2, 0.4, 0.1, 1.0])
    drawn = margin + spread * np.random.default_rng(1).standard_normal((400_000, 5))
    np.testing.assert_allclose(
        expected_gain(margin, spread), np.maximum(-drawn, 0.0).mean(axis=0), rtol=0.03, atol=1e-5
    )


def test_without_uncertainty_only_members_are_worth_asking() -> None:
    assert expected_gain(np.array([-0.3, 0.0, 0.3]), np.zeros(3)).tolist() == [0.3, 0.0, 0.0]


def test_of_two_equally_likely_clients_the_one_with_more_at_stake_gains_more() -> None:
    near, far = expected_gain(np.array([0.01, 0.1]), np.array([0.02, 0.2]))
    assert far == pytest.approx(10 * near)


def test_gains_keep_their_order_far_from_the_best() -> None:
    """No difference of nearly equal numbers: thirty standard deviations off is less than twenty-nine, and not 0."""
    found = expected_gain(np.linspace(5.0, 30.0, 26), np.ones(26))
    assert (np.diff(found) < 0).all()
    assert found[-1] > 0


def test_margins_are_those_of_all_swaps() -> None:
    estimates = random_estimates(8, seed=3)
    rules = Constraints(include=("c01",), exclude=("c07",))
    limits = feasible_sizes(rules, estimates, (3,))[3]
    problem = Problem.of(estimates, PFL(WEIGHTS))
    members = (1, 2, 5)
    found = margins(problem, limits, members, control=CONTROL)
    rises = {
        (out, add): max(problem.loss([add if i == out else i for i in members]) - problem.loss(members), 0.0)
        for out, add in product((2, 5), (0, 3, 4, 6))
    }
    for add in (0, 3, 4, 6):
        assert found[add] == pytest.approx(min(rises[out, add] for out in (2, 5)), abs=1e-9)
    for out in (2, 5):
        assert found[out] == pytest.approx(-min(rises[out, add] for add in (0, 3, 4, 6)), abs=1e-9)
    assert found[1] == min(found)  # must stay
    assert found[7] == max(found)  # cannot join


def released(sigma: float, rows: int) -> Estimates:
    """Twelve clients' tables with normal noise, denoised."""
    exact = random_estimates(12, seed=4, rows=rows)
    sigmas = np.full(exact.layout.tables, sigma)
    noise = np.random.default_rng(0).normal(0, sigma, exact.cells.shape)
    found = shrink(exact.cells + noise, exact.layout, sigmas)
    return dataclasses.replace(
        exact, cells=found.cells, marginals=found.marginals, totals=found.totals,
        sigmas=np.tile(sigmas, (12, 1)), posterior=found.posterior,
    )  # fmt: skip


def test_gains_decide_only_where_noise_hides_what_tells_clients_apart() -> None:
    noisy, clear = released(30.0, 300), released(5.0, 2000)
    margin, everyone = np.linspace(-0.1, 0.3, 12), np.ones(12, dtype=bool)
    assert noisy.posterior is not None
    assert known_share(noisy, WEIGHTS) < 0.5 < 0.8 < known_share(clear, WEIGHTS)
    found = gains(noisy, PFL(WEIGHTS), (0, 1, 2), margin, everyone)
    spread = client_errors(noisy, noisy.posterior, np.arange(3), np.arange(12), WEIGHTS)
    np.testing.assert_array_equal(found, expected_gain(margin, spread))
    assert gains(clear, PFL(WEIGHTS), (0, 1, 2), margin, everyone) is None
    assert gains(noisy, Balance(), (0, 1, 2), margin, everyone) is None  # its slope is not known here
    plain = dataclasses.replace(noisy, posterior=None)
    assert gains(plain, PFL(WEIGHTS), (0, 1, 2), margin, everyone) is None
    assert gains(noisy, PFL(WEIGHTS), (0, 1, 2), margin, ~everyone) is None


def test_what_is_known_of_some_clients_alone() -> None:
    noisy = released(60.0, 2000)
    some = np.arange(12) < 4
    alone = known_share(noisy, WEIGHTS, some, alone=True)
    assert alone != known_share(noisy, WEIGHTS, some)
    assert known_share(noisy, WEIGHTS, np.ones(12, dtype=bool), alone=True) == known_share(noisy, WEIGHTS)


def test_a_shortlist_of_a_given_size_asks_by_gain(small_schema: fw.Schema) -> None:
    plan = fw.plan(small_schema, stages=[0.05, 3.0], epsilon=3.0)
    pool = fw.Pool.of(
        fw.release(plan, make_people(300 + 200 * n, n), client=name, simulated=True, seed=3)
        for n, name in enumerate(CLIENTS)
    )
    estimates, chosen = fw.estimate(pool), fw.select(pool, 3, evidence="none", threads=1)
    members = pool.index(chosen.clients)
    limits = feasible_sizes(Constraints(), estimates, (3,))[3]
    margin = margins(Problem.of(estimates, PFL(WEIGHTS)), limits, members, control=CONTROL)
    worth = gains(estimates, PFL(WEIGHTS), members, margin, np.ones(10, dtype=bool))
    assert worth is not None
    made = fw.shortlist(pool, 3, size=5, redraws=10, threads=1)
    assert set(made.clients) == set(np.array(CLIENTS)[np.argsort(-worth)[:5]].tolist())
    # Who reads the list sees what decided, in its order.
    words = "asking it should lower the loss by "
    told = [float(one.reason.removeprefix(words).split(";")[0]) for one in made.standings if one.asked]
    assert told == sorted(told, reverse=True)
    assert any(one.reason.startswith(words) for one in made.standings if not one.asked)
