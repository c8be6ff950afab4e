"""Kernels against the slow reference."""

from __future__ import annotations

import math
import platform
import re

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedwise.errors import FedwiseError
from fedwise.objective.pfl import Weights, loss, terms
from fedwise.search import kernels
from fedwise.search.chains import ACCEPTED, BEST, CURRENT, RESUM, Walk, anneal, seed_words, uniform
from fedwise.search.constraints import Constraints
from fedwise.search.kernels import move
from fedwise.search.logarithm import xlog2x
from fedwise.search.problem import PFL, Problem
from search.pools import random_estimates

WEIGHTS = Weights()


def close(found: float, wanted: float, estimates, members, weights=WEIGHTS) -> bool:
    """Equal to 1e-9, relative to the weighted terms before they cancel."""
    parts = terms(estimates, members)
    scale = (
        weights.alpha * abs(parts.direct_bias)
        + weights.beta * abs(parts.proxy_bias)
        + weights.gamma * abs(parts.redundancy)
        + weights.lam * abs(parts.signal)
    )
    return abs(found - wanted) <= 1e-9 * scale + 1e-12


pools = st.fixed_dictionaries(
    {
        "clients": st.integers(3, 7),
        "seed": st.integers(0, 10_000),
        "features": st.lists(st.integers(1, 7), min_size=1, max_size=4).map(tuple),
        "sensitive": st.lists(st.integers(1, 3), min_size=0, max_size=2).map(tuple),
        "target": st.integers(2, 3),
        "plain": st.booleans(),
        "sigma": st.sampled_from([0.0, 0.3, 8.0, 200.0]),
    }
)
weight = st.sampled_from([0.0, 0.1111, 0.8889, 1.0, 2.0])


@settings(max_examples=150, deadline=None)
@given(pool=pools, w=st.tuples(weight, weight, weight, st.sampled_from([0.5, 1.3333])))
def test_every_kernel_equals_the_reference(pool, w):
    estimates = random_estimates(**pool)
    weights = Weights(*w)
    problem = Problem.of(estimates, PFL(weights))
    assert problem.spec is not None
    n = len(estimates.clients)
    members, out, into = list(range(n - 1)), 0, n - 1
    swapped = [*members[1:], into]
    want = loss(estimates, members, weights)
    want_swapped = loss(estimates, swapped, weights)
    sums = problem.sums(members)
    swap = problem.swapped(sums, np.array([[out, into]]))[0]
    assert close(problem.loss(members), want, estimates, members, weights)
    assert close(swap, want_swapped, estimates, swapped, weights)
    joined = problem.joined(problem.sums(members[1:]), np.array([into, out]))
    assert close(joined[0], want_swapped, estimates, swapped, weights)
    assert close(joined[1], want, estimates, members, weights)
    dropped = problem.dropped(problem.sums([*members, into]), np.array([out, into]))
    assert close(dropped[0], want_swapped, estimates, swapped, weights)
    assert close(dropped[1], want, estimates, members, weights)
    path = problem.along(np.array([members]))[0]
    for length in range(1, len(members) + 1):
        head = members[:length]
        assert close(path[length - 1], loss(estimates, head, weights), estimates, head, weights)
    move(sums, problem.rows[out], problem.rows[into])
    np.testing.assert_allclose(sums, problem.sums(swapped), atol=1e-8)


def test_logarithm_over_its_whole_range():
    rng = np.random.default_rng(0)
    values = np.concatenate(
        [2.0 ** rng.uniform(-200, 200, 20_000), 2.0 ** np.arange(-60, 60), [1.0, math.sqrt(0.5)]]
    )
    found = np.array([xlog2x(v) / v for v in values])
    np.testing.assert_allclose(found, np.log2(values), atol=5e-14, rtol=4e-16)


@pytest.mark.parametrize("value", [0.0, -0.0, -1.0, -1e300, 5e-324])
def test_empty_and_negative_cells_count_nothing(value):
    assert abs(xlog2x(value)) < 1e-290


def test_a_million_swaps_do_not_drift():
    # Temperature infinity: every proposal is accepted, more often than any search would.
    estimates = random_estimates(20, seed=3, features=(5, 6, 4), sigma=3.0)
    problem = Problem.of(estimates, PFL(WEIGHTS))
    assert problem.spec is not None
    limits = Constraints().resolve(estimates.clients, estimates.totals)
    order = np.arange(20)
    sums, base = problem.sums(order[:6]), np.zeros(problem.width)
    floats = np.array([problem.loss(order[:6]), np.inf, 1e300])
    integers = np.array([0, 0, 0])
    best = np.zeros(6, dtype=np.int64)
    words = seed_words(1, 0)
    walk = Walk(
        order, 6, base, sums, np.zeros(0), np.zeros(0, np.int64), best, floats, integers, words, 1.0, 10**9
    )
    anneal(problem.spec, np.empty((2, 0)), problem.rows, limits, walk, 1_000_000)
    assert integers[ACCEPTED] == 1_000_000
    assert integers[ACCEPTED] % RESUM != 0, "the last fresh sum must lie before the check"
    assert sorted(order) == list(range(20))
    fresh = problem.sums(order[:6])
    np.testing.assert_allclose(sums, fresh, rtol=1e-9, atol=1e-9)
    assert floats[CURRENT] == pytest.approx(loss(estimates, order[:6], WEIGHTS), rel=1e-9)
    assert floats[BEST] == pytest.approx(loss(estimates, best, WEIGHTS), rel=1e-9)


def test_swaps_without_fresh_sums_drift_little():
    estimates = random_estimates(12, seed=4, sigma=3.0)
    problem = Problem.of(estimates, PFL(WEIGHTS))
    members = list(range(5))
    sums = problem.sums(members)
    rng = np.random.default_rng(0)
    for _ in range(RESUM):
        at, into = rng.integers(5), rng.integers(12)
        if into not in members:
            move(sums, problem.rows[members[at]], problem.rows[into])
            members[at] = int(into)
    np.testing.assert_allclose(sums, problem.sums(members), rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("plain", [False, True])
def test_gradient_is_the_slope_of_the_kernel(plain):
    estimates = random_estimates(6, seed=5, rows=3000, plain=plain)
    objective = PFL(WEIGHTS)
    problem = Problem.of(estimates, objective)
    sums = problem.sums([0, 1, 2]) + 2.0
    if plain:  # margins and totals must follow the cells
        estimates.cells[0] += 2.0
        problem = Problem.of(estimates, objective)
        sums = problem.sums([0, 1, 2])
    gradient = objective.gradient(sums)
    rng = np.random.default_rng(0)
    for row in rng.integers(0, 6, 3):
        step = problem.rows[row] * 1e-4
        up, down = problem.evaluate(np.stack([sums + step, sums - step]))
        assert gradient @ (2 * step) == pytest.approx(up - down, rel=1e-5, abs=1e-9)


def test_tables_without_weight_take_no_room():
    estimates = random_estimates(4, features=(5, 5, 5))
    everything = PFL(WEIGHTS).rows(estimates).shape[1]
    assert PFL(Weights(2.0, 0.0, 0.0, 1.0)).rows(estimates).shape[1] < everything / 2


def test_an_empty_federation_has_loss_zero():
    estimates = random_estimates(4)
    for plain in (False, True):
        pool = random_estimates(4, plain=plain)
        assert (
            Problem.of(pool, PFL(WEIGHTS)).evaluate(np.zeros((1, PFL(WEIGHTS).rows(pool).shape[1])))[0] == 0.0
        )
    assert loss(estimates, [], WEIGHTS) == 0.0


def test_objective_must_see_the_estimates_first():
    with pytest.raises(FedwiseError, match="call rows"):
        PFL(WEIGHTS).evaluate(np.zeros((1, 3)))


def test_not_a_number_is_refused():
    estimates = random_estimates(4)
    estimates.cells[1, 2] = np.nan
    with pytest.raises(FedwiseError, match="finite"):
        Problem.of(estimates, PFL(WEIGHTS))


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="reads x86 machine code")
def test_the_swap_loop_uses_packed_instructions():
    # Scalar code would be four times slower and still correct, so only the machine code can tell.
    fresh = numba.njit(fastmath=True, error_model="numpy")(kernels._consistent_swap.py_func)
    fresh(*(np.ones(64) for _ in range(4)))
    code = "\n".join(fresh.inspect_asm().values())
    assert re.search(r"\bv?divpd\b", code)
    assert re.search(r"\bv?mulpd\b", code)


def test_uniform_numbers_are_uniform_and_chains_differ():
    # Kolmogorov–Smirnov at 20,000 draws: 1.95/√n is exceeded with probability 0.001, and the seed is fixed.
    state = seed_words(0, 0)
    draws = np.sort([uniform(state) for _ in range(20_000)])
    assert draws[0] >= 0
    assert draws[-1] < 1
    assert np.abs(draws - (np.arange(20_000) + 0.5) / 20_000).max() < 1.95 / math.sqrt(20_000)
    firsts = {uniform(seed_words(s, c)) for s in range(30) for c in range(30)}
    assert len(firsts) == 900
