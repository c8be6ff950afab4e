"""Is this checkout as fast as another? The timed cases of search.py, counting.py and train.py in both, in one run.

    python benchmarks/versus.py --old CHECKOUT [--repeats 15] [--only search] [--json]

One process of each checkout stays alive and both do the same piece of work in turn, so that what else the machine
does falls on both. A process runs its checkout's own benchmark scripts: names that moved between versions need no
second spelling here. Figures are processor seconds of all threads. The ratio is of the two minima, beside the middle
half of the ratios of the single turns. Exits 1 when a ratio is above the bound of 1.1; a case that is above it is
measured again with twice the turns first, since a minimum of few turns may be above by chance.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent.parent
BOUND = 1.1
#: One thread, and memory that is kept: when glibc gives it back depends on all that was allocated before.
QUIET = {
    "OMP_NUM_THREADS": "1",
    "POLARS_MAX_THREADS": "1",
    "MALLOC_MMAP_THRESHOLD_": str(2**30),
    "MALLOC_TRIM_THRESHOLD_": str(2**30),
}
Work = Callable[[], object]


def search_cases() -> Iterator[tuple[str, Work]]:
    """Kernels and methods over the income tables of 50 states; the whole way over a pool of areas."""
    search = importlib.import_module("search")
    tables = importlib.import_module("search_tables")
    census = tables.DATA.is_dir()
    states = tables.income_states() if census else tables.wide_estimates(50, features=9, levels=8)
    plain = getattr(search, "_plain", None) or search._without_marginals
    problem = search.Problem.of(states, search.PFL(search.WEIGHTS))
    clipped = search.Problem.of(plain(states), search.PFL(search.WEIGHTS))
    members = [0, 10, 20, 30, 40]

    def swaps(problem: Any, count: int) -> Work:
        sums, scratch = problem.sums(members), np.zeros((2, problem.spec.scratch))
        return lambda: search._many_swaps(problem.spec, scratch, sums, problem.rows, count)

    def searching(method: Any, k: int, times: int = 1) -> Work:
        return lambda: [search.run(method, problem, states, k, seed=seed, threads=1) for seed in range(times)]

    yield "swap", swaps(problem, 50_000)
    yield "swap, clipped", swaps(clipped, 20_000)
    for k in (5, 10, 15):
        yield f"Annealing.paper(), k = {k}", searching(search.Annealing.paper(), k, 6)
    for k in (5, 10):
        yield f"Annealing(), k = {k}", searching(search.Annealing(), k)
    yield "Exact(), k = 4", searching(search.Exact(), 4)
    many = tables.wide_estimates(2_000, features=9, levels=8, extra=3)
    yield "select 50 of 2,000", lambda: search.select(many, 50, method="auto", evidence="none")
    if census:
        yield from _areas(tables)


def _areas(tables: Any) -> Iterator[tuple[str, Work]]:
    """Plan, releases with noise, pool and selection of every twentieth area of the census."""
    import fedwise as fw

    parts = tables.pumas_2024()
    names = sorted(parts)[::20]
    plan = fw.plan(tables.PERSON_2024, epsilon=1.0, delta=1e-5)

    def release() -> list[Any]:
        return [
            fw.release(plan, parts[name], client=name, simulated=True, seed=i) for i, name in enumerate(names)
        ]

    releases = release()
    pool = fw.Pool.of(releases)
    yield "areas: releases", release
    yield "areas: pool", lambda: fw.Pool.of(releases)
    yield (
        "areas: selection of 20",
        lambda: importlib.import_module("search").select(pool, 20, evidence="quick"),
    )


def counting_cases() -> Iterator[tuple[str, Work]]:
    """Count, release, start."""
    import inspect

    import polars as pl

    import fedwise as fw

    counting = importlib.import_module("counting")
    if counting.DATA.exists():
        schema = counting.nearfull_schema()
        layout = fw.plan(schema).layout
        records = pl.read_parquet(counting.DATA)
        parts = records.partition_by("ST", as_dict=True, maintain_order=True)
        states = [parts[key] for key in sorted(parts)][:10]
        yield "count ten states", lambda: [counting.count(schema.encode(part), layout) for part in states]
    plan = fw.plan(counting.shipped("income"))
    rng = np.random.default_rng(0)
    people = pl.DataFrame(
        {
            column.name: rng.choice(column.levels, 20_000)
            if column.levels
            else rng.integers(max(int(column.bins[0]), 0), int(column.bins[-1]), 20_000)
            for column in plan.schema.columns
        }
    ).with_columns(AGEP=pl.lit(40), WKHP=pl.lit(40))
    free = {"uncharged": True} if "uncharged" in inspect.signature(fw.release).parameters else {}
    yield "release", lambda: fw.release(plan, people, client="x", **free)
    command = [sys.executable, "-m", "fedwise.cli.main", "--help"]
    yield "fedwise --help", lambda: subprocess.run(command, check=True, capture_output=True)


def train_cases() -> Iterator[tuple[str, Work]]:
    """Rounds, rounds tested one by one, and the test alone, for both built-in models."""
    train = importlib.import_module("train")
    _, prepared = train.load()

    def rounds(number: int, **settings: Any) -> Work:
        config = train.Config(rounds=number, replicates=0, **settings)
        return lambda: train.simulate(prepared, prepared.clients, config)

    # As many rounds as make what follows the last one, new metrics among it, a small part.
    for name, number in (("mlp", 20), ("logistic", 60)):
        yield f"{name}: rounds", rounds(number, model=name, evaluate_every=10**9)
        yield f"{name}: tested rounds", rounds(number, model=name)
        model = train.Model.named(name, prepared.encoder.width)
        vector = model.initial(0)
        yield f"{name}: test", lambda m=model, v=vector: [train.test_loss(prepared, m, v) for _ in range(50)]


CASES = {"search": search_cases, "counting": counting_cases, "train": train_cases}


def processor() -> float:
    """Processor seconds of this process and of those it waited for."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def serve(part: str) -> None:
    """Prepare the cases of a part, say their names, then do each that is named on standard input."""
    talk, sys.stdout = sys.stdout, sys.stderr
    cases = dict(CASES[part]())
    for work in cases.values():
        work()  # compiles
    print(json.dumps(list(cases)), file=talk, flush=True)
    for line in sys.stdin:
        work = cases[json.loads(line)]
        gc.collect()
        began = processor()
        work()
        print(json.dumps(processor() - began), file=talk, flush=True)


class Checkout:
    """A process that has the cases of one part ready, in one checkout."""

    def __init__(self, tree: Path, part: str) -> None:
        paths = (tree / "src", tree / "benchmarks")
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(HERE / "benchmarks" / "versus.py"), "--serve", part],
            env={**os.environ, **QUIET, "PYTHONPATH": os.pathsep.join(map(str, paths))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.cases: list[str] = []

    def wait(self) -> None:
        """Until the cases are ready."""
        self.cases = self._read()

    def seconds(self, case: str) -> float:
        """Do a case once."""
        assert self._process.stdin is not None
        print(json.dumps(case), file=self._process.stdin, flush=True)
        return float(self._read())

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a checkout could not do its work; see above")
        return json.loads(line)


def turns(old: Checkout, new: Checkout, case: str, repeats: int) -> list[tuple[float, float]]:
    """Seconds of old and new, in turn; who is first changes from turn to turn."""
    found = []
    for turn in range(repeats):
        if turn % 2:
            after = new.seconds(case)
            found.append((old.seconds(case), after))
        else:
            before = old.seconds(case)
            found.append((before, new.seconds(case)))
    return found


def compare(old: Checkout, new: Checkout, case: str, repeats: int) -> dict[str, Any]:
    """The figures of one case."""
    found = turns(old, new, case, repeats)
    if _ratio(found) > BOUND:
        found += turns(old, new, case, 2 * repeats)
    low, high = np.quantile([after / before for before, after in found], [0.25, 0.75])
    before, after = (min(values) for values in zip(*found, strict=True))
    return {
        "case": case,
        "old": before,
        "new": after,
        "ratio": after / before,
        "low": float(low),
        "high": float(high),
        "turns": len(found),
        "ok": after / before <= BOUND,
    }


def _ratio(found: list[tuple[float, float]]) -> float:
    before, after = (min(values) for values in zip(*found, strict=True))
    return after / before


def main() -> int:
    """Compare; 1 if a ratio is above the bound."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--old", type=Path, help="the other checkout")
    parser.add_argument("--repeats", type=int, default=15, help="turns of each case")
    parser.add_argument("--only", choices=CASES, action="append", help="one part; may be given again")
    parser.add_argument("--case", default="", help="only cases whose name contains this")
    parser.add_argument("--json", action="store_true", help="one JSON list on stdout")
    parser.add_argument("--serve", choices=CASES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.serve)
        return 0
    if given.old is None:
        parser.error("--old must name another checkout of fedwise")
    rows = []
    if not given.json:
        print(f"{'processor seconds':<36} {'old':>9} {'new':>9} {'ratio':>6}   middle half, turns")
    for part in given.only or CASES:
        old, new = Checkout(given.old.resolve(), part), Checkout(HERE, part)
        old.wait()
        new.wait()
        for case in (case for case in new.cases if case in old.cases and given.case in case):
            row = compare(old, new, case, given.repeats)
            rows.append(row)
            if not given.json:
                print(
                    f"{case:<36} {row['old']:9.4f} {row['new']:9.4f} {row['ratio']:6.2f}   "
                    f"{row['low']:.2f} to {row['high']:.2f}, {row['turns']}"
                    f"{'' if row['ok'] else f'   above {BOUND}'}",
                    flush=True,
                )
        old.close()
        new.close()
    if given.json:
        print(json.dumps(rows, indent=2))
    return 0 if all(row["ok"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
