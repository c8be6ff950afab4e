"""select: the whole way, its evidence, and the mistakes people make."""

from __future__ import annotations

import dataclasses
import itertools
import json
import threading
import time

import msgspec
import numpy as np
import pytest

from fedwise.errors import FedwiseError, Infeasible
from fedwise.objective.pfl import Weights, loss, terms
from fedwise.objective.representative import Representative
from fedwise.search import Annealing, Exact, Selection, frontier, pareto, select
from fedwise.search.entry import resolve_method
from fedwise.search.sizes import parse_sizes
from search.pools import random_estimates

WEIGHTS = Weights()
KEYS = {
    "clients", "k", "loss", "terms", "std_error", "method", "status", "evaluations", "seconds", "seed", "certificate",
    "alternatives",
}  # fmt: skip


@pytest.fixture(scope="module")
def estimates():
    return random_estimates(12, seed=1)


@pytest.fixture(scope="module")
def noisy():
    return random_estimates(12, seed=1, sigma=5.0, plain=True)


def best_of(estimates, k):
    return min(
        (loss(estimates, m, WEIGHTS), m) for m in itertools.combinations(range(len(estimates.clients)), k)
    )


def test_auto_is_exact_on_small_pools(estimates):
    selection = select(estimates, 4)
    value, members = best_of(estimates, 4)
    assert selection.clients == tuple(estimates.clients[i] for i in members)
    assert selection.loss == pytest.approx(value, rel=1e-9)
    assert selection.terms == terms(estimates, members)
    assert (selection.method, selection.status, selection.k) == ("exact", "exact", 4)
    assert "No federation of this size (4) has a lower estimated loss" in selection.certificate.statement
    assert [a.gap >= 0 for a in selection.alternatives] == [True] * 5
    assert len({a.clients for a in selection.alternatives} | {selection.clients}) == 6


def test_auto_turns_to_annealing_by_work_not_by_clock(estimates):
    from fedwise.search.problem import PFL, Problem

    problem = Problem.of(estimates, PFL(WEIGHTS))
    assert isinstance(resolve_method("auto", problem, 8e9 / problem.width), Exact)
    assert isinstance(resolve_method("auto", problem, 8e9 / problem.width * 1.01), Annealing)
    assert isinstance(resolve_method("auto", dataclasses.replace(problem, spec=None), 1e9), Annealing)


def test_annealing_says_how_many_chains_agreed(estimates):
    selection = select(estimates, 4, method="annealing")
    assert selection.status == "local"
    assert selection.certificate.statement == "No single swap improves it; 8 chains of 8 agreed."


def test_json_holds_the_promised_keys_and_comes_back(estimates, tmp_path):
    selection = select(estimates, 4)
    assert set(selection.to_dict()) >= KEYS
    assert set(selection.to_dict()["terms"]) == {"direct_bias", "proxy_bias", "redundancy", "signal"}
    json.dumps(selection.to_dict(), allow_nan=False)
    selection.save(tmp_path / "s.json")
    assert Selection.load(tmp_path / "s.json") == selection
    with pytest.raises(FedwiseError, match="exists"):
        selection.save(tmp_path / "s.json")


def test_damaged_selection_files(tmp_path):
    (tmp_path / "bad.json").write_text('{"clients": 3}')
    with pytest.raises(FedwiseError, match=r"selection file '.*bad.json' is not valid"):
        Selection.load(tmp_path / "bad.json")


def test_it_reads_well(estimates):
    selection = select(estimates, 3, method="greedy-forward")
    text, page = str(selection), selection._repr_html_()
    for client in selection.clients:
        assert client in text
        assert client in page
    assert "not private" in text
    evil = msgspec.structs.replace(selection, clients=("<script>alert(1)</script>",))
    assert "<script>" not in evil._repr_html_()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 0}, "k must be between 1 and the 12 clients of the pool, got 0"),
        ({"k": 13}, "k must be between 1 and the 12 clients of the pool, got 13"),
        ({"k": True}, "k must be an integer"),
        ({"k": "many"}, "k must be an integer or a range such as '5:15', got 'many'"),
        ({"k": "9:3"}, "from small to large"),
        ({"k": "1:999999999"}, "between 1 and the 12 clients of the pool, got 999999999"),
        ({"k": None}, r"k \(--size\) must be given"),
        ({"k": 3, "include": ["c99x"]}, "include must name clients of the pool, got 'c99x'"),
        ({"k": 3, "include": ["C01"]}, "did you mean 'c01'"),
        ({"k": 3, "method": "exat"}, "method 'exat' is not known; did you mean 'exact'"),
        ({"k": 3, "method": 7}, "method must be a name or a settings object"),
        ({"k": 3, "evidence": "some"}, "evidence must be one of none, quick, full, got 'some'"),
        ({"k": 3, "seed": -1}, "seed must be an integer of at least 0, got -1"),
        ({"k": 3, "threads": 0}, "threads must be at least 1, got 0"),
        ({"k": 3, "alternatives": -2}, "alternatives must be at least 0"),
        ({"smallest": -0.1}, "smallest must be a finite tolerance of at least 0"),
        ({"representative": 0.1, "smallest": 0.1}, "representative must stand alone"),
    ],
)
def test_mistakes_get_one_clear_sentence(estimates, arguments, message):
    with pytest.raises(FedwiseError, match=message) as error:
        select(estimates, **arguments)
    assert "\n" not in str(error.value)


def test_a_pool_must_be_a_pool():
    with pytest.raises(FedwiseError, match="pool must be a Pool or Estimates, got str"):
        select("releases/", 3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("k", "sizes"), [("2:4", (2, 3, 4)), ((2, 4), (2, 3, 4)), (range(2, 4), (2, 3)), ("3", (3,))]
)
def test_sizes(k, sizes):
    assert parse_sizes(k, 12) == sizes


def test_a_range_reports_every_size_and_takes_the_best(estimates):
    selection = select(estimates, "2:5")
    expected = {k: best_of(estimates, k)[0] for k in range(2, 6)}
    assert {s.k: s.loss for s in selection.sizes} == pytest.approx(expected, rel=1e-9)
    assert selection.loss == pytest.approx(min(expected.values()), rel=1e-9)


def test_smallest_within_a_tolerance(estimates):
    expected = {k: best_of(estimates, k)[0] for k in range(2, 7)}
    tolerance = sorted(v - min(expected.values()) for v in expected.values())[2]
    chosen = select(estimates, "2:6", smallest=tolerance + 1e-9)
    assert chosen.k == min(k for k, v in expected.items() if v <= min(expected.values()) + tolerance + 1e-9)


def test_sizes_that_are_infeasible_are_left_out(estimates):
    chosen = select(estimates, "1:4", include=("c01", "c02", "c03"))
    assert {s.k for s in chosen.sizes} == {3, 4}
    with pytest.raises(Infeasible, match="include names 3 clients but k is 1"):
        select(estimates, "1:2", include=("c01", "c02", "c03"))


def test_representative_of_the_whole_pool(estimates):
    goal = Representative()
    rows = goal.rows(estimates)
    assert goal.evaluate(rows.sum(axis=0, keepdims=True))[0] == pytest.approx(0.0, abs=1e-12)
    selection = select(estimates, representative=0.03)
    assert selection.objective == "representative"
    assert selection.loss <= 0.03
    smaller = min(
        goal.evaluate(rows[list(m)].sum(axis=0, keepdims=True))[0]
        for m in itertools.combinations(range(12), selection.k - 1)
    )
    assert smaller > 0.03 or selection.k == 2
    with pytest.raises(Infeasible, match="no federation found is within 1e-06 bits of the pool"):
        select(estimates, "2:3", representative=1e-6)


def test_contributions_add_up(estimates):
    selection = select(estimates, 5, evidence="full")
    members = [estimates.clients.index(c) for c in selection.clients]
    assert sum(c.shapley for c in selection.contributions) == pytest.approx(selection.loss, rel=1e-9)
    for contribution, i in zip(selection.contributions, members, strict=True):
        rest = [m for m in members if m != i]
        assert contribution.leave_one_out == pytest.approx(
            selection.loss - loss(estimates, rest, WEIGHTS), rel=1e-6
        )
        exact = 0.0
        orders = list(itertools.permutations(members))
        for order in orders:
            before = list(order[: order.index(i)])
            with_it, without = [*before, i], before
            exact += (
                loss_of(estimates, tuple(sorted(with_it))) - loss_of(estimates, tuple(sorted(without)))
            ) / len(orders)
        # Normal quantile at one in 10^6 for five members: five standard errors, seed fixed.
        assert abs(contribution.shapley - exact) < 5 * contribution.shapley_error + 1e-9


_CACHE: dict[tuple[int, ...], float] = {}


def loss_of(estimates, members):
    if members not in _CACHE:
        _CACHE[members] = loss(estimates, list(members), WEIGHTS)
    return _CACHE[members]


def test_frequency_of_redrawn_noise(noisy):
    selection = select(noisy, 4)
    assert selection.redraws == 10
    assert sum(selection.frequency.values()) == pytest.approx(4.0)
    assert all(0 < share <= 1 for share in selection.frequency.values())
    assert select(noisy, 4).frequency == selection.frequency
    tiny = dataclasses.replace(noisy, sigmas=np.full_like(noisy.sigmas, 1e-6))
    assert select(tiny, 4).frequency == dict.fromkeys(select(tiny, 4).clients, 1.0)


def test_no_noise_nothing_to_redraw(estimates):
    selection = select(estimates, 4)
    assert selection.frequency == {}
    assert selection.redraws == 0
    assert selection.certificate.sigma == 0.0


def test_no_evidence_is_quick_and_bare(noisy):
    selection = select(noisy, 4, evidence="none")
    assert selection.contributions == ()
    assert selection.frequency == {}
    assert selection.certificate.mu is None


def test_the_trace_falls_and_ends_at_the_loss(estimates):
    for method in ("annealing", "exact", "greedy-exchange"):
        trace = select(estimates, 4, method=method).trace
        values = [value for _, value in trace]
        assert values == sorted(values, reverse=True)
        assert [count for count, _ in trace] == sorted(count for count, _ in trace)
        assert values[-1] == pytest.approx(best_of(estimates, 4)[0], rel=1e-9)


class Count:
    """A user's own objective: prefer federations with about 1,000 records."""

    name = "records"

    def rows(self, estimates):
        return estimates.totals[:, None]

    def evaluate(self, sums):
        return np.abs(sums[:, 0] - 1000.0)


def test_a_users_objective_runs_through_select(estimates):
    selection = select(estimates, 5, objective=Count())
    best = min(abs(estimates.totals[list(m)].sum() - 1000) for m in itertools.combinations(range(12), 5))
    assert selection.loss == pytest.approx(best)
    assert selection.objective == "records"
    assert selection.std_error is None
    assert "not known for the objective 'records'" in selection.certificate.noise_statement


class Broken(Count):
    def __init__(self, answer):
        self.answer = answer

    def evaluate(self, sums):
        return self.answer(len(sums))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda n: np.full(n, np.nan), "objective 'records' returned NaN"),
        (lambda n: np.zeros(n + 1), "objective 'records' must return one loss for each summed row"),
    ],
)
def test_a_broken_objective_is_named(estimates, answer, message):
    with pytest.raises(FedwiseError, match=message):
        select(estimates, 5, objective=Broken(answer))


def test_errors_inside_an_objective_come_through(estimates):
    def fail(n):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        select(estimates, 5, objective=Broken(fail))


def test_interrupt_returns_the_best_so_far_quickly():
    estimates = random_estimates(40, seed=3)
    calls = []

    def cancel(done, total, best):
        calls.append((time.perf_counter(), done, total, best))
        if done > 0:
            raise KeyboardInterrupt

    selection = select(estimates, 12, method=Exact(most=10**12), progress=cancel, threads=2)
    stopped = time.perf_counter()
    assert selection.status == "interrupted"
    assert "interrupted" in selection.certificate.statement
    assert len(selection.clients) == 12
    first = next(at for at, done, _, _ in calls if done > 0)
    assert stopped - first < 30.0, "a slice takes a fraction of a second; the rest is a busy machine"
    assert selection.loss <= calls[-1][3] + 1e-9
    members = [estimates.clients.index(c) for c in selection.clients]
    assert selection.loss == pytest.approx(loss(estimates, members, WEIGHTS), rel=1e-9)


def test_a_slow_objective_can_be_interrupted(estimates):
    class Slow(Count):
        def evaluate(self, sums):
            time.sleep(0.002)
            return super().evaluate(sums)

    def cancel(done, total, best):
        raise KeyboardInterrupt

    began = time.perf_counter()
    selection = select(
        estimates, 5, objective=Slow(), method=Annealing(chains=2, steps=100_000), progress=cancel
    )
    assert selection.status == "interrupted"
    assert time.perf_counter() - began < 60, "the whole search would take minutes"


def test_progress_is_told_from_the_callers_thread(estimates):
    seen = []
    select(
        estimates, 5, method="annealing", progress=lambda *args: seen.append((threading.get_ident(), args))
    )
    assert {thread for thread, _ in seen} == {threading.get_ident()}
    done, total, best = seen[-1][1]
    assert 0 < done <= total
    assert best < 0


def test_frontier_is_the_best_of_every_size(estimates):
    found = frontier(estimates, "2:6", pareto_points=7)
    for point in found.points:
        value, members = best_of(estimates, point.k)
        assert point.loss == pytest.approx(value, rel=1e-9)
        assert point.clients == tuple(estimates.clients[i] for i in members)
        assert point.terms.loss(WEIGHTS) == pytest.approx(point.loss, rel=1e-9)
    assert found.best.loss == min(p.loss for p in found.points)
    assert found.pareto_k == found.best.k
    json.dumps(found.to_dict(), allow_nan=False)


def test_pareto_front_holds_the_ends_and_nothing_dominated(estimates):
    front = pareto(estimates, 4, points=9)
    every = []
    for members in itertools.combinations(range(12), 4):
        parts = terms(estimates, members)
        every.append(
            (
                WEIGHTS.alpha * parts.direct_bias + WEIGHTS.beta * parts.proxy_bias,
                WEIGHTS.lam * parts.signal - WEIGHTS.gamma * parts.redundancy,
            )
        )
    assert front[0].unfairness == pytest.approx(min(u for u, _ in every))
    assert front[-1].utility == pytest.approx(max(v for _, v in every))
    for one, two in itertools.pairwise(front):
        assert one.unfairness < two.unfairness
        assert one.utility < two.utility
    # No federation at all beats an end or a supported point: those minimise a weighted sum.
    for point in front:
        worse = [e for e in every if e[0] < point.unfairness - 1e-12 and e[1] > point.utility + 1e-12]
        if worse:
            assert min(u - v for u, v in every) <= point.unfairness - point.utility + 1e-12
    with pytest.raises(FedwiseError, match="points must be at least 2"):
        pareto(estimates, 4, points=1)
