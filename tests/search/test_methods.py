"""Search methods against brute force, with and without constraints, compiled and in Python."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fedwise.errors import FedwiseError
from fedwise.objective.pfl import Weights, loss
from fedwise.search.annealing import Annealing
from fedwise.search.constraints import Constraints, satisfied
from fedwise.search.control import Control
from fedwise.search.exact import Exact
from fedwise.search.feasible import check
from fedwise.search.greedy import Greedy
from fedwise.search.neighbourhood import best_swaps, descend
from fedwise.search.problem import PFL, Problem
from search.pools import random_estimates

WEIGHTS = Weights()


class Slow:
    """The PFL without its compiled kernels: what a user's own objective looks like."""

    name = "slow"

    def __init__(self) -> None:
        self.inner = PFL(WEIGHTS)
        self.calls = 0

    def rows(self, estimates):
        return self.inner.rows(estimates)

    def evaluate(self, sums):
        self.calls += 1
        return self.inner.evaluate(sums)


CONSTRAINTS = {
    "none": {},
    "include": {"include": ("c03", "c07")},
    "exclude": {"exclude": ("c00", "c01", "c05")},
    "records": {"min_records": 900.0},
    "records of each": {"min_client_records": 200.0},
    "groups": {"groups": {f"c{i:02d}": "ab"[i % 2] for i in range(8)}, "max_per_group": 2},
    "caps by group": {
        "groups": {f"c{i:02d}": "ab"[i % 2] for i in range(8)},
        "max_per_group": {"a": 1, "b": 3},
    },
    "budget": {"costs": {f"c{i:02d}": float(i) for i in range(9)}, "budget": 12.0},
    "all": {
        "include": ("c04",),
        "exclude": ("c00",),
        "min_records": 500.0,
        "groups": {f"c{i:02d}": "abc"[i % 3] for i in range(9)},
        "max_per_group": 2,
        "costs": {f"c{i:02d}": float(i) for i in range(9)},
        "budget": 20.0,
    },
}


def brute_force(estimates, constraints, k):
    """Every feasible federation by the reference objective and by the constraints' own words."""
    c = constraints
    found = []
    for members in itertools.combinations(range(len(estimates.clients)), k):
        names = [estimates.clients[i] for i in members]
        if not set(c.include) <= set(names) or set(c.exclude) & set(names):
            continue
        if c.min_client_records is not None and estimates.totals[list(members)].min() < c.min_client_records:
            continue
        if c.min_records is not None and estimates.totals[list(members)].sum() < c.min_records:
            continue
        if c.budget is not None and sum(c.costs.get(name, 0.0) for name in names) > c.budget:
            continue
        groups = [c.groups[name] for name in names if name in c.groups]
        cap = c.max_per_group
        if any(groups.count(g) > (cap[g] if isinstance(cap, dict) else cap) for g in set(groups)):
            continue
        found.append((loss(estimates, list(members), WEIGHTS), members))
    return sorted(found)


def run(method, estimates, k, constraints=None, *, objective=None, seed=0, threads=1):
    problem = Problem.of(estimates, objective or PFL(WEIGHTS))
    limits = check(constraints or Constraints(), estimates.clients, estimates.totals, k)
    with Control(threads=threads) as control:
        return control.run(lambda: method.search(problem, limits, k, seed=seed, control=control))


@pytest.mark.parametrize("plain", [False, True], ids=["consistent", "plain"])
@pytest.mark.parametrize("name", CONSTRAINTS)
@pytest.mark.parametrize("k", [1, 4, 6])
def test_exact_equals_brute_force(name, k, plain):
    estimates = random_estimates(10, seed=k, plain=plain, sigma=4.0 if plain else 0.0)
    constraints = Constraints(**CONSTRAINTS[name])
    expected = brute_force(estimates, constraints, k)
    if not expected:
        with pytest.raises(FedwiseError):
            run(Exact(), estimates, k, constraints)
        return
    outcome = run(Exact(), estimates, k, constraints)
    assert outcome.exhaustive
    assert outcome.members == expected[0][1]
    assert outcome.loss == pytest.approx(expected[0][0], rel=1e-9)
    assert outcome.evaluations == len(expected)
    wanted = [members for _, members in expected[: len(outcome.ranked)]]
    assert [members for _, members in outcome.ranked] == wanted


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_a_python_objective_goes_the_same_way(name):
    estimates = random_estimates(9, seed=2)
    constraints = Constraints(**CONSTRAINTS[name])
    for method in (
        Exact(),
        Annealing(chains=2, steps=200),
        Greedy("exchange"),
        Greedy("forward"),
        Greedy("backward"),
    ):
        slow = Slow()
        found = run(method, estimates, 4, constraints, objective=slow)
        assert slow.calls > 0
        assert found.members == run(method, estimates, 4, constraints).members


@pytest.mark.parametrize("name", CONSTRAINTS)
@pytest.mark.parametrize(
    "method",
    [Annealing(chains=3, steps=300), Greedy("forward"), Greedy("backward"), Greedy("exchange")],
    ids=str,
)
def test_heuristics_keep_the_constraints(name, method):
    constraints = Constraints(**CONSTRAINTS[name])
    for seed in range(4):
        estimates = random_estimates(10, seed=seed)
        feasible = {m: v for v, m in brute_force(estimates, constraints, 4)}
        if not feasible:
            continue
        outcome = run(method, estimates, 4, constraints, seed=seed)
        assert outcome.members in feasible
        assert outcome.loss == pytest.approx(feasible[outcome.members], rel=1e-9)
        assert all(members in feasible for _, members in outcome.ranked)
        if outcome.local:
            for out, into in itertools.product(outcome.members, range(10)):
                neighbour = tuple(sorted({*outcome.members, into} - {out}))
                if into not in outcome.members and neighbour in feasible:
                    assert feasible[neighbour] >= outcome.loss - 1e-12


def test_annealing_finds_the_optimum_of_small_pools():
    for seed in range(10):
        estimates = random_estimates(14, seed=seed)
        outcome = run(Annealing(), estimates, 5, seed=seed)
        assert outcome.members == run(Exact(), estimates, 5).members
        assert outcome.local
        assert 1 <= outcome.agreed <= outcome.chains == 8


@pytest.mark.parametrize(
    "method", [Annealing(), Annealing.paper(chains=3), Exact(), Greedy("exchange")], ids=str
)
def test_same_seed_same_answer_on_one_or_two_threads(method):
    estimates = random_estimates(16, seed=1)
    one, two = (run(method, estimates, 6, seed=5, threads=threads) for threads in (1, 2))
    assert one == two


def test_another_seed_is_another_walk():
    estimates = random_estimates(40, seed=1)
    settings = Annealing(chains=1, steps=5, descent=False)
    assert len({run(settings, estimates, 6, seed=seed).members for seed in range(5)}) > 1


def test_the_papers_schedule():
    # From 1 to 1e-4 at 0.98 is 456 levels of 15; the cap of 5,000 proposals stops it at about 333.
    paper = Annealing.paper()
    initial, cooling, steps = paper._schedule(123.0, 5000)
    assert (initial, cooling, steps) == (1.0, 0.98, 5000)
    assert paper._schedule(123.0, 10**9)[2] == 456 * 15
    outcome = run(paper, random_estimates(12), 4)
    assert outcome.evaluations == 5001
    assert outcome.chains == 1
    assert not outcome.local


def test_a_falling_schedule_ends_where_it_should():
    initial, cooling, steps = Annealing(steps=3000)._schedule(2.0, 3000)
    assert initial == pytest.approx(1.0)
    assert initial * cooling ** (steps / 15) == pytest.approx(0.004)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"chains": 0}, "chains must be an integer of at least 1, got 0"),
        ({"steps": 1.5}, "steps must be an integer of at least 1, got 1.5"),
        ({"initial": 0.1, "final": 0.2}, "0 < final <= initial"),
        ({"cooling": 1.0}, "cooling must lie between 0 and 1, got 1.0"),
    ],
)
def test_bad_annealing_settings(settings, message):
    with pytest.raises(FedwiseError, match=message):
        Annealing(**settings)


def test_exact_refuses_what_would_take_days():
    with pytest.raises(FedwiseError, match="at most 1,000 federations, got 3,003; use method='annealing'"):
        run(Exact(most=1000), random_estimates(15), 5)


def test_large_neighbourhoods_end_in_a_proven_optimum(monkeypatch):
    from fedwise.search import neighbourhood

    estimates = random_estimates(120, seed=9, features=(4, 5))
    problem = Problem.of(estimates, PFL(WEIGHTS))
    limits = check(Constraints(exclude=("c07",)), estimates.clients, estimates.totals, 12)
    monkeypatch.setattr(neighbourhood, "_SMALL", 0)
    with Control(threads=2) as control:
        end = descend(problem, limits, tuple(range(20, 32)), control=control)
        swaps = best_swaps(problem, limits, np.array(end.members), control=control)
    assert end.proven
    assert end.loss < problem.loss(range(20, 32))
    reference = [
        loss(estimates, sorted({*end.members, into} - {out}), WEIGHTS)
        for out in end.members
        for into in set(range(120)) - {7} - set(end.members)
    ]
    assert min(reference) >= end.loss - 1e-12
    assert swaps.losses[0] == pytest.approx(min(reference), rel=1e-9)
    assert end.neighbours[0][0] == pytest.approx(min(reference), rel=1e-9)
    assert satisfied(limits, np.array(end.members))


def test_greedy_forward_and_backward_by_hand():
    estimates = random_estimates(8, seed=6)
    members: list[int] = []
    for _ in range(3):
        members.append(
            min(set(range(8)) - set(members), key=lambda i: loss(estimates, [*members, i], WEIGHTS))
        )
    assert run(Greedy("forward"), estimates, 3).members == tuple(sorted(members))
    left = list(range(8))
    while len(left) > 3:
        left.remove(min(left, key=lambda i: loss(estimates, [j for j in left if j != i], WEIGHTS)))
    assert run(Greedy("backward"), estimates, 3).members == tuple(left)


def test_greedy_knows_its_directions():
    with pytest.raises(FedwiseError, match="forward, backward, exchange, got 'sideways'"):
        Greedy("sideways")  # type: ignore[arg-type]


@pytest.mark.parametrize("method", [Annealing(), Exact(), Greedy("exchange"), Greedy("backward")], ids=str)
def test_the_whole_pool_is_a_federation(method):
    estimates = random_estimates(5)
    outcome = run(method, estimates, 5)
    assert outcome.members == (0, 1, 2, 3, 4)
    assert outcome.loss == pytest.approx(loss(estimates, range(5), WEIGHTS), rel=1e-9)


def test_everyone_included_leaves_nothing_to_search():
    estimates = random_estimates(5)
    constraints = Constraints(include=("c01", "c04"))
    for method in (Annealing(), Exact(), Greedy("forward")):
        assert run(method, estimates, 2, constraints).members == (1, 4)
