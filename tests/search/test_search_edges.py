"""The rare turns of the search: interruptions between steps, empty neighbourhoods, objectives that misbehave."""

from __future__ import annotations

import math
import os
import threading
from dataclasses import replace

import numpy as np
import pytest

import fedwise as fw
from conftest import make_people
from fedwise.errors import FedwiseError, Infeasible
from fedwise.objective.pfl import Weights
from fedwise.search import Annealing, evidence, frontier, pareto, select
from fedwise.search.constraints import Constraints
from fedwise.search.control import Control, cores
from fedwise.search.exact import Exact
from fedwise.search.feasible import check, start
from fedwise.search.neighbourhood import best_swaps, descend
from fedwise.search.outcome import Outcome
from fedwise.search.problem import PFL, Problem
from fedwise.search.sizes import parse_sizes
from search.pools import random_estimates

WEIGHTS = Weights()


@pytest.fixture(scope="module")
def estimates():
    return random_estimates(8, seed=2, sigma=2.0)


@pytest.fixture(scope="module")
def problem(estimates):
    return Problem.of(estimates, PFL(WEIGHTS))


def limits_of(estimates, k, **rules):
    return check(Constraints(**rules), estimates.clients, estimates.totals, k)


@pytest.fixture
def stopped():
    """A control that was told to stop."""
    with Control(threads=1) as control:
        control._stop.set()
        yield control


@pytest.mark.parametrize(
    ("k", "message"),
    [
        (1.5, "must be an integer, a range or text"),
        (True, "must be an integer, a range or text"),
        ((1, 2, 3), "must be an integer, a range or text"),
        (range(0), "must hold at least one size"),
        (range(3, 30), "between 1 and"),
    ],
)
def test_sizes_that_mean_nothing(k, message):
    with pytest.raises(FedwiseError, match=message):
        parse_sizes(k, 8)


# --- Evidence ---------------------------------------------------------------------------------------------


def test_without_a_budget_for_orders_there_is_no_shapley_value(problem, monkeypatch):
    monkeypatch.setitem(evidence._SHAPLEY, "quick", 3)
    found = evidence.contributions(problem, (0, 2, 4), evidence="quick", seed=0)
    assert [c.shapley for c in found] == [None] * 3
    whole = problem.loss(np.array([0, 2, 4]))
    assert found[0].leave_one_out == pytest.approx(whole - problem.loss(np.array([2, 4])), rel=1e-9)
    alone = evidence.contributions(problem, (3,), evidence="none", seed=0)
    assert alone[0].leave_one_out is None


def test_the_nearest_swap_of_a_stopped_search_comes_from_what_was_met(estimates, problem, stopped):
    limits = limits_of(estimates, 2)
    ranked = ((-3.0, (0, 1)), (-2.0, (2, 3)), (-1.5, (0, 3)))
    outcome = Outcome((0, 1), -3.0, ranked, 3)
    assert evidence.swaps_around(problem, limits, outcome, stopped) is None
    assert evidence.nearest_swap(problem, outcome, None) == (1.5, (0, 3))
    assert evidence.nearest_swap(problem, Outcome((0, 1), -3.0, ranked[:2], 3), None) is None


def test_too_many_swaps_are_not_scanned_again(estimates, monkeypatch):
    monkeypatch.setattr(evidence, "_GAP_SWAPS", 3)
    certificate = select(estimates, 2).certificate
    assert certificate.swap_chance is None
    assert "too many swaps" in certificate.noise_statement


def test_no_swap_is_left_when_everyone_is_fixed(estimates, problem):
    limits = limits_of(estimates, 2, include=estimates.clients[:2])
    with Control(threads=1) as control:
        outcome = Outcome((0, 1), problem.loss(np.array([0, 1])), (), 1)
        swaps = evidence.swaps_around(problem, limits, outcome, control)
        assert swaps is not None
        assert evidence.nearest_swap(problem, outcome, swaps) is None


def test_large_pools_are_not_redrawn_quickly(estimates, problem, monkeypatch):
    assert evidence.redraw_count(estimates, problem, "quick") > 0
    monkeypatch.setattr(evidence, "_QUICK_CELLS", 0)
    assert evidence.redraw_count(estimates, problem, "quick") == 0
    assert evidence.redraw_count(estimates, problem, "full") > 0
    assert evidence.redraw_count(random_estimates(4), problem, "full") == 0


def test_a_stopped_search_redraws_nothing(estimates, problem, stopped):
    outcome = Outcome((0, 1), problem.loss(np.array([0, 1])), (), 1)
    found = evidence.frequency(
        estimates, WEIGHTS, limits_of(estimates, 2), outcome, redraws=5, seed=0, control=stopped
    )
    assert (found.frequency, found.made, found.optimism, found.regret) == ({}, 0, (), ())


# --- Frontier ---------------------------------------------------------------------------------------------


def test_the_front_is_traced_at_the_best_size_or_the_one_asked(estimates):
    found = frontier(estimates, (2, 4), pareto_points=3, threads=1)
    best = min(found.points, key=lambda point: (point.loss, point.k)).k
    assert {len(t.clients) for t in found.pareto} == {best}
    asked = frontier(estimates, (2, 3), pareto_points=3, pareto_k=4, threads=1)
    assert {len(t.clients) for t in asked.pareto} == {4}
    with pytest.raises(FedwiseError, match="between 1 and"):
        frontier(estimates, (2, 3), pareto_points=3, pareto_k=9)


def test_an_interrupted_frontier_keeps_its_points_and_traces_no_front():
    estimates = random_estimates(30, seed=3)
    told = []

    def cancel(done, total, best):
        told.append(done)
        raise KeyboardInterrupt

    endless = Annealing(chains=1, steps=10**9)
    found = frontier(estimates, (8, 12), pareto_points=3, threads=1, progress=cancel, method=endless)
    assert told
    assert found.status == "interrupted"
    assert len(found.points) == 1
    assert found.points[-1].status == "interrupted"
    assert found.pareto == ()


def test_a_front_with_nothing_to_minimise_at_one_end(estimates):
    """Weights on one side only: at the other end no weight is left, and that emphasis is skipped."""
    found = pareto(estimates, 2, weights=Weights(1.0, 1.0, 0.0, 0.0), points=3, threads=1)
    assert len(found) >= 1


# --- Problem, neighbourhood, exact, constraints -----------------------------------------------------------


@pytest.mark.parametrize("plain", [False, True])
def test_nobody_has_no_slope(plain):
    problem = Problem.of(random_estimates(4, plain=plain), PFL(WEIGHTS))
    assert not problem.objective.gradient(np.zeros(problem.width)).any()


def test_an_objective_with_a_wrong_number_of_rows_is_refused(estimates):
    class Short:
        name = "short"

        def rows(self, estimates):
            return np.zeros((3, 2))

        def evaluate(self, sums):
            return sums[:, 0]

    with pytest.raises(FedwiseError, match=r"objective 'short' must return one row for each"):
        select(estimates, 2, objective=Short())


def test_a_stopped_scan_is_not_complete(estimates, problem, stopped):
    limits = limits_of(estimates, 3)
    swaps = best_swaps(problem, limits, np.array([0, 1, 2]), control=stopped)
    assert not swaps.complete
    ended = descend(problem, limits, (0, 1, 2), control=stopped)
    assert ended.members == (0, 1, 2)
    assert not ended.proven


@pytest.mark.parametrize("compiled", [True, False])
def test_a_block_without_a_feasible_federation_is_empty(estimates, problem, compiled):
    groups = dict.fromkeys(estimates.clients, "one")
    limits = Constraints(groups=groups, max_per_group=1).resolve(estimates.clients, estimates.totals)
    if not compiled:
        problem = replace(problem, spec=None)
    with Control(threads=1) as control:
        assert Exact()._block(problem, limits, 2, 0, 3, control) == (0, 3, [])


def test_exact_search_of_a_slow_objective_stops_between_blocks(estimates):
    class Slow:
        name = "count"

        def rows(self, estimates):
            return np.ones((len(estimates.clients), 1))

        def evaluate(self, sums):
            return sums[:, 0]

    with Control(threads=1) as control:
        control._stop.set()
        problem = Problem.of(estimates, Slow())
        outcome = Exact().search(problem, limits_of(estimates, 3), 3, seed=0, control=control)
    assert not outcome.exhaustive
    assert len(outcome.members) == 3


def test_a_start_where_no_federation_is_feasible_says_so(estimates):
    groups = dict.fromkeys(estimates.clients, "one")
    limits = Constraints(groups=groups, max_per_group=1).resolve(estimates.clients, estimates.totals)
    with pytest.raises(Infeasible, match="no federation of 2 clients satisfies the constraints"):
        start(limits, 2, 0, 0)


# --- Control ----------------------------------------------------------------------------------------------


def test_the_second_interrupt_is_raised(monkeypatch):
    """The first Ctrl-C asks the search to stop; one who presses again does not wait."""
    release = threading.Event()
    calls = []

    def wait(*_, **__):
        calls.append(1)
        if len(calls) == 2:
            release.set()
        raise KeyboardInterrupt

    monkeypatch.setattr("fedwise.search.control.wait", wait)
    with Control(threads=1) as control, pytest.raises(KeyboardInterrupt):
        control.run(lambda: release.wait(60))
    assert control.interrupted
    assert len(calls) == 2


def test_an_error_of_the_search_reaches_the_caller():
    def fail():
        raise ZeroDivisionError("mine")

    with Control(threads=1) as control, pytest.raises(ZeroDivisionError, match="mine"):
        control.run(fail)
    assert control.stopped()


def test_cores_where_the_system_does_not_tell(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert cores() == 3
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert cores() == 1


# --- What a selection says about its releases -------------------------------------------------------------


def test_flags_say_how_the_noise_was_made(small_schema, tmp_path):
    frames = [make_people(200, seed) for seed in range(3)]
    private, bare = fw.plan(small_schema, epsilon=3.0), fw.plan(small_schema, epsilon=math.inf)
    ledgers = [fw.Ledger(tmp_path / f"{i}.db", 3.0) for i in range(3)]
    real = [fw.release(private, f, client=f"c{i}", ledger=ledgers[i]) for i, f in enumerate(frames)]
    assert select(fw.Pool.of(real), 2, evidence="none").flags == ()
    uncharged = fw.release(private, frames[0], client="c0", uncharged=True)
    (flag,) = select(fw.Pool.of([uncharged, *real[1:]]), 2, evidence="none").flags
    assert flag.startswith("not charged: ")
    open_pool = fw.Pool.of(
        [fw.release(bare, f, client=f"c{i}", no_privacy=True) for i, f in enumerate(frames)]
    )
    assert select(open_pool, 2, evidence="none").flags == ("not private: the releases carry no noise",)
    assert select(random_estimates(5, sigma=1.0), 2, evidence="none").flags == ()
    assert select(random_estimates(5), 2, evidence="none").flags == (
        "not private: the estimates carry no noise",
    )
