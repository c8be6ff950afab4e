"""Benchmark of the search: every figure the project states, beside its baseline, in one run.

    python benchmarks/search.py [--quick] [--json] [--plot docs/theory]

Exits 1 when a stated bound fails. Times are the best of several repetitions; run it on an idle machine.
Needs the census records in ../shared/data for the census parts, which are skipped where they are absent.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numba
import numpy as np
from search_plot import write_plot
from search_tables import DATA, PERSON_2024, income_states, pumas_2024, wide_estimates

from fedwise.estimation.estimates import Estimates
from fedwise.objective.pfl import Weights, loss
from fedwise.search import Annealing, Exact, select
from fedwise.search import kernels as kernel_module
from fedwise.search.chains import Walk, anneal, seed_words
from fedwise.search.constraints import Constraints
from fedwise.search.control import Control
from fedwise.search.feasible import check
from fedwise.search.kernels import swap_loss
from fedwise.search.outcome import Method, Outcome
from fedwise.search.problem import PFL, Problem

#: Seconds of one evaluation of the paper's published code on ACSIncome tables, measured for k = 5, 10, 15.
PUBLISHED = {5: 0.97, 10: 1.57, 15: 2.05}
WEIGHTS = Weights()


@dataclass
class Board:
    """Figures in order, and whether each keeps its bound."""

    figures: list[dict[str, Any]] = field(default_factory=list)
    loud: bool = True

    def add(self, name: str, value: float, unit: str, *, bound: float | None = None, at_least: bool = False,
            baseline: str = "") -> None:  # fmt: skip
        """Note a figure and print it."""
        ok = None if bound is None else (value >= bound if at_least else value <= bound)
        self.figures.append(
            {"name": name, "value": value, "unit": unit, "bound": bound, "at_least": at_least, "ok": ok,
             "baseline": baseline}
        )  # fmt: skip
        if self.loud:
            mark = {None: "    ", True: "ok  ", False: "FAIL"}[ok]
            limit = "" if bound is None else f"   {'>=' if at_least else '<='} {bound:g}"
            print(f"{mark} {name:<58} {value:>12.5g} {unit:<8}{limit:<14} {baseline}", flush=True)


def best_time(
    work: Callable[[], object], repeats: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Shortest of several runs, in seconds of `clock`."""
    times = []
    for _ in range(repeats):
        began = clock()
        work()
        times.append(clock() - began)
    return min(times)


@numba.njit(nogil=True)
def _many_swaps(spec: Any, scratch: Any, sums: Any, rows: Any, count: int) -> float:
    total = 0.0
    for i in range(count):
        total += swap_loss(spec, scratch, sums, rows[i % rows.shape[0]], rows[(7 * i + 3) % rows.shape[0]])
    return total


def swap_seconds(problem: Problem, members: list[int], repeats: int = 60, count: int = 200) -> float:
    """Seconds of one swap evaluation, cycling through the clients' rows."""
    assert problem.spec is not None
    sums, scratch = problem.sums(members), np.zeros((2, problem.spec.scratch))
    _many_swaps(problem.spec, scratch, sums, problem.rows, 2)
    return best_time(lambda: _many_swaps(problem.spec, scratch, sums, problem.rows, count), repeats) / count


def log_seconds(cells: int, repeats: int = 60) -> float:
    """Seconds of one numpy.log over as many positive float64 cells."""
    values = np.random.default_rng(0).gamma(0.5, 2000.0, cells) + 0.1

    def work() -> None:
        for _ in range(50):
            np.log(values)

    return best_time(work, repeats) / 50


def run(
    method: Method, problem: Problem, estimates: Estimates, k: int, seed: int = 0, threads: int | None = None
) -> Outcome:
    """One search without evidence."""
    limits = check(Constraints(), estimates.clients, estimates.totals, k)
    with Control(threads=threads) as control:
        return control.run(lambda: method.search(problem, limits, k, seed=seed, control=control))


def accuracy(board: Board, states: Estimates) -> None:
    """Kernel against the reference, and drift."""
    rng = np.random.default_rng(0)
    for label, estimates in (("consistent", states), ("plain", _plain(states))):
        problem = Problem.of(estimates, PFL(WEIGHTS))
        worst = 0.0
        for _ in range(50):
            noisy = Estimates(
                estimates.clients, estimates.schema, estimates.layout,
                estimates.cells + rng.normal(0, 20, estimates.cells.shape), estimates.totals, estimates.marginals,
                estimates.estimator, estimates.sigmas,
            )  # fmt: skip
            problem = Problem.of(noisy, PFL(WEIGHTS))
            members = np.sort(rng.choice(len(states.clients), rng.integers(2, 20), replace=False))
            want = loss(noisy, members, WEIGHTS)
            worst = max(worst, abs(problem.loss(members) - want) / abs(want))
        board.add(f"kernel against objective.loss, {label}, worst of 50", worst, "relative", bound=1e-9)
    problem = Problem.of(states, PFL(WEIGHTS))
    limits = check(Constraints(), states.clients, states.totals, 5)
    rows = problem.rows / 3.0  # thirds do not sum exactly: drift would show
    order = np.arange(len(states.clients))
    sums = rows[:5].sum(axis=0)
    walk = Walk(
        order, 5, np.zeros(problem.width), sums, np.zeros(0), np.zeros(0, np.int64), np.zeros(5, np.int64),
        np.array([0.0, np.inf, 1e300]), np.zeros(3, np.int64), seed_words(0, 0), 1.0, 10**9,
    )  # fmt: skip
    anneal(problem.spec, np.empty((2, 0)), rows, limits, walk, 1_000_000)
    fresh = rows[order[:5]].sum(axis=0)
    board.add(
        "drift of the sum after 10^6 swaps", float(np.abs(sums - fresh).max() / np.abs(fresh).max()), "relative",
        bound=1e-9,
    )  # fmt: skip


def speed(board: Board, states: Estimates) -> None:
    """One swap evaluation beside numpy.log, and packed instructions in the machine code."""
    problem = Problem.of(states, PFL(WEIGHTS))
    plain = Problem.of(_plain(states), PFL(WEIGHTS))
    swap, log = swap_seconds(problem, [0, 10, 20, 30, 40]), log_seconds(problem.width)
    board.add("numpy.log over the same number of cells", log * 1e6, "µs", baseline=f"{problem.width} cells")
    board.add("one swap evaluation, consistent tables", swap * 1e6, "µs",
              baseline=f"published code {PUBLISHED[5]:g} s: {PUBLISHED[5] / swap:,.0f} times")  # fmt: skip
    board.add("swap evaluation / numpy.log", swap / log, "", bound=0.3, baseline="goal 0.2")
    board.add("one swap evaluation, plain tables (clipped)", swap_seconds(plain, [0, 10, 20, 30, 40]) * 1e6, "µs",
              baseline=f"numpy.log {log_seconds(plain.width) * 1e6:.3g} µs")  # fmt: skip
    board.add(
        "packed arithmetic instructions in the swap loop", packed_instructions(), "", bound=1, at_least=True
    )


def packed_instructions() -> int:
    """Packed multiply, divide and add instructions in the machine code of the consistent swap loop."""
    source = kernel_module._consistent_swap.py_func  # type: ignore[attr-defined]
    fresh = numba.njit(fastmath=True, error_model="numpy")(source)
    fresh(*(np.ones(64) for _ in range(4)))
    code = "\n".join(fresh.inspect_asm().values())
    x86 = r"\bv?(?:mul|div|add|sub|fmadd\d+|fmsub\d+)pd\b"
    arm = r"\bf(?:mul|div|mla)\s+v\d+\.2d"
    return len(re.findall(f"{x86}|{arm}", code))


def paper_schedule(board: Board, states: Estimates) -> None:
    """The paper's annealing, one run each."""
    problem = Problem.of(states, PFL(WEIGHTS))
    for k in (5, 10, 15):
        run(Annealing.paper(), problem, states, k)
        seconds = best_time(lambda k=k: run(Annealing.paper(), problem, states, k, seed=1), 3)
        board.add(f"Annealing.paper(), k={k}, one run", seconds, "s", bound=0.1,
                  baseline=f"published code {PUBLISHED[k] * 5000 / 60:.0f} min for 5,000 evaluations")  # fmt: skip


def exact_and_annealing(board: Board, states: Estimates, *, quick: bool) -> None:
    """Exact at k=5, and how often default annealing finds it."""
    problem = Problem.of(states, PFL(WEIGHTS))
    run(Exact(), problem, states, 2)
    began, worked = time.perf_counter(), time.process_time()
    best = run(Exact(), problem, states, 5)
    seconds, worked = time.perf_counter() - began, time.process_time() - worked
    board.add("Exact, k=5 of 50: 2,118,760 federations", seconds, "s", bound=12.0,
              baseline=f"{worked:.3g} CPU s; published code {PUBLISHED[5] * 2118760 / 86400:.0f} days")  # fmt: skip
    board.add("federations visited", best.evaluations, "", bound=2118760, at_least=True)
    seeds = 20 if quick else 100
    began = time.perf_counter()
    found = sum(
        run(Annealing(), problem, states, 5, seed=seed).members == best.members for seed in range(seeds)
    )
    each = (time.perf_counter() - began) / seeds
    board.add(f"default annealing finds it, of {seeds} seeds", found, "seeds", bound=0.99 * seeds, at_least=True,
              baseline=f"{each:.3g} s each")  # fmt: skip
    paper = sum(
        run(Annealing.paper(), problem, states, 5, seed=s).members == best.members for s in range(seeds)
    )
    board.add(
        f"Annealing.paper() finds it, of {seeds} seeds",
        paper,
        "seeds",
        baseline="the paper's schedule, one run",
    )
    small = Estimates(
        states.clients[:12], states.schema, states.layout, states.cells[:12], states.totals[:12],
        states.marginals[:12], states.estimator, states.sigmas,
    )  # fmt: skip
    import itertools

    brute = min((loss(small, m, WEIGHTS), m) for m in itertools.combinations(range(12), 3))
    same = run(Exact(), Problem.of(small, PFL(WEIGHTS)), small, 3).members == brute[1]
    board.add(
        "Exact equals brute force by the reference (12 choose 3)", float(same), "", bound=1, at_least=True
    )


def threads(board: Board, states: Estimates) -> None:
    """One or two threads, one answer."""
    problem = Problem.of(states, PFL(WEIGHTS))
    same = all(
        run(method, problem, states, k, seed=3, threads=1)
        == run(method, problem, states, k, seed=3, threads=2)
        for method, k in ((Annealing(), 10), (Annealing.paper(chains=4), 5), (Exact(), 3))
    )
    board.add("same answer on one and two threads", float(same), "", bound=1, at_least=True)


def scaling(board: Board, plot: Path | None) -> None:
    """Cost of an evaluation against cells and against k."""
    by_cells, by_k = [], []
    for levels in (2, 3, 4, 6, 8, 12, 16):
        estimates = wide_estimates(60, features=9, levels=levels)
        problem = Problem.of(estimates, PFL(WEIGHTS))
        by_cells.append((problem.width, swap_seconds(problem, [0, 1, 2, 3, 4], 25, 100) * 1e6))
    estimates = wide_estimates(200, features=9, levels=8)
    problem = Problem.of(estimates, PFL(WEIGHTS))
    for k in (2, 5, 10, 20, 50, 100, 150):
        by_k.append((k, swap_seconds(problem, list(range(k)), 25, 100) * 1e6))
    cells, micros = np.array(by_cells, dtype=float).T
    slope = np.polyfit(np.log(cells[2:]), np.log(micros[2:]), 1)[0]
    board.add("exponent of cost in cells (1 is linear)", float(slope), "", bound=1.15)
    costs = [micro for _, micro in by_k]
    board.add("cost of a swap at k=150 over k=2", costs[-1] / costs[0], "", bound=1.25)
    by_steps = []
    limits = check(Constraints(), estimates.clients, estimates.totals, 10)
    for steps in (2000, 4000, 8000, 16000):
        settings = Annealing(chains=1, steps=steps, descent=False)

        def work(settings: Annealing = settings) -> None:
            with Control(threads=1) as control:
                settings.search(problem, limits, 10, seed=0, control=control)

        by_steps.append((steps, best_time(work, 5, time.process_time) * 1e3))
    board.add(
        "time of 16,000 evaluations over 2,000 (8 is linear)", by_steps[-1][1] / by_steps[0][1], "", bound=9.0
    )
    if plot is not None:
        write_plot(plot / "search-cost.svg", by_cells, by_k)


def _large(queue: Any) -> None:
    estimates = wide_estimates(10_000, features=9, levels=8, extra=3)
    began = time.perf_counter()
    selection = select(estimates, 100, method="auto", evidence="none")
    queue.put(
        (
            time.perf_counter() - began, selection.status, selection.evaluations, estimates.layout.cells,
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        )
    )  # fmt: skip


def large(board: Board) -> None:
    """10,000 clients, k=100, in a process of its own to measure its memory."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_large, args=(queue,))
    process.start()
    seconds, status, evaluations, cells, memory = queue.get(timeout=600)
    process.join()
    what = f"10,000 clients x {cells} cells, k=100"
    board.add(f"{what}: time", seconds, "s", bound=60.0, baseline=f"{evaluations:,} evaluations")
    board.add(f"{what}: swap-local optimum proven", float(status == "local"), "", bound=1, at_least=True)
    board.add(f"{what}: peak memory", memory, "GB", bound=2.0)


def pumas(board: Board, *, quick: bool) -> None:
    """Real clients end to end: plan, releases with noise, pool, selection."""
    import fedwise as fw

    parts = pumas_2024()
    names = sorted(parts)[:: 8 if quick else 1]
    plan = fw.plan(PERSON_2024, epsilon=1.0, delta=1e-5)
    began = time.perf_counter()
    releases = [
        fw.release(plan, parts[name], client=name, simulated=True, seed=i) for i, name in enumerate(names)
    ]
    made = time.perf_counter() - began
    began = time.perf_counter()
    pool = fw.Pool.of(releases)
    loaded = time.perf_counter() - began
    began = time.perf_counter()
    selection = select(pool, 20, evidence="quick")
    what = f"{len(names):,} PUMAs of 2024"
    board.add(
        f"{what}: releases made",
        made,
        "s",
        baseline=f"{plan.layout.tables} tables, {plan.layout.cells} cells",
    )
    board.add(f"{what}: pool checked and screened", loaded, "s")
    board.add(f"{what}: selection of 20", time.perf_counter() - began, "s",
              baseline=f"{selection.method}, {selection.evaluations:,} evaluations")  # fmt: skip
    board.add(
        f"{what}: swap-local optimum proven", float(selection.status == "local"), "", bound=1, at_least=True
    )


def _plain(estimates: Estimates) -> Estimates:
    """The same counts as the paper's loss takes them: clipped tables with marginals of their own."""
    return replace(estimates, estimator="plain")


def main() -> int:
    """Run all parts; 1 if a bound fails."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer seeds, fewer real clients, no large pool")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--plot", type=Path, help="directory to write search-cost.svg into")
    options = parser.parse_args()
    board = Board(loud=not options.json)
    if DATA.is_dir():
        states = income_states()
    else:
        print("no census records in ../shared/data: random tables of the same shape instead", file=sys.stderr)
        states = wide_estimates(50, features=9, levels=8)
    accuracy(board, states)
    speed(board, states)
    paper_schedule(board, states)
    exact_and_annealing(board, states, quick=options.quick)
    threads(board, states)
    scaling(board, options.plot)
    if not options.quick:
        large(board)
    if DATA.is_dir():
        pumas(board, quick=options.quick)
    failed = [figure["name"] for figure in board.figures if figure["ok"] is False]
    if options.json:
        print(json.dumps({"figures": board.figures, "failed": failed}, indent=2))
    elif failed:
        print(f"{len(failed)} bounds failed: {'; '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
