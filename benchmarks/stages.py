"""Benchmark of stages: what is lost when only a shortlist releases at the full ε?

    python benchmarks/stages.py [--quick | --full] [--tasks income2018 ...] [--seeds 10 20] [--ks 5 10 15]
                                [--schedules 0.1,1 ...] [--out stages.csv] [--mixed mixed.csv]

Exact census tables stand for the truth. Everybody releases at the first ε of a schedule; `fw.shortlist` says who is
asked again, half of the clients at most (``size`` is half of the pool); their releases combine by precision, and
`fw.select` chooses from the mixed pool. ``0.1,1/4`` asks the second stage in four waves; ``0.05,0.1s,1/4`` asks
everybody for a score up to ε = 0.1, once the first wave has shown what to score by. Beside it stand single
releases at one ε for all. The first stage sees the same standard normal draws as the single releases; in schedules with
a score the last stage does. Measured for each draw of the noise:

- regret: true loss of the chosen federation less that of the best of its size; *answered*: the same where only those
  who answered the last stage may be chosen (`fedwise select --answered`);
- mean ε over clients, and how many end at the first ε;
- how many members of the true best federation the elimination left out, and the chance it stated.

``--mixed``: a third of the clients each at ε = 0.1, 0.5 and 2. Coverage of the error bar (1.96 standard errors) for
random federations, and regret beside the same pool with everybody at 0.1.

**What was chosen on what.** The draws of the posterior, the margins and the weights of mixed pools were compared on
income2018, employment2024 and travel2024 with the seeds 0–2, waves and their number on the PUMAs of Ohio, Michigan,
Pennsylvania and Illinois with the seeds 0–5. Who is asked (by gain, not by chance) was chosen on all of `DEVELOPMENT`,
seeds 0–3, and looked at again with 4–9; that chances decide on states, after states with reported seeds had shown it.
Reported are seeds from 10 on. The PUMAs of Georgia and Washington were used for nothing else. Two states are few for a
ratio with a standard error of a tenth, so four more (`FURTHER`) were fixed before any figure of theirs was seen. Rows
are appended as they are made: a run that was stopped goes on where it was.
Needs the census records in ../shared/data.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table

import fedwise as fw
from fedwise.data import acs
from fedwise.estimation import Estimates, estimate
from fedwise.estimation.uncertainty import standard_error
from fedwise.objective.pfl import Weights, loss
from fedwise.owner.tables import count
from fedwise.planning import Plan, plan
from fedwise.pool.intake import Scores
from fedwise.pool.pool import Pool
from fedwise.pool.spending import Part, Spending
from fedwise.privacy.staging import SCORE_PARTS

DATA = Path(__file__).parents[2] / "shared" / "data"
PERSON = "acs2024_person.parquet"
TASKS: dict[str, tuple[str, str, int, dict[str, Any]]] = {
    "income2018": ("income", "acs2018_income.parquet", 2018, {}),
    "travel2024": ("travel_time", PERSON, 2024, {}),
    "employment2024": ("employment", PERSON, 2024, {}),
    "income2024": ("income", PERSON, 2024, {}),
    "coverage2024": ("public_coverage", PERSON, 2024, {}),
    "areas GA": ("income", PERSON, 2024, {"by": "PUMA", "only": ("GA",)}),
    "areas WA": ("employment", PERSON, 2024, {"by": "PUMA", "only": ("WA",)}),
}
#: Areas on which waves, and interactions that tell of marginals, were chosen.
DEVELOPMENT = {
    f"areas {state}": (task, PERSON, 2024, {"by": "PUMA", "only": (state,)})
    for task, states in (("income", "OH PA NC VA"), ("employment", "MI IL AZ TN"))
    for state in states.split()
}
#: Further areas that report and chose nothing: fixed before any figure of theirs was seen.
FURTHER = {
    f"areas {state}": (task, PERSON, 2024, {"by": "PUMA", "only": (state,)})
    for task, states in (("income", "NJ MA"), ("employment", "IN MO"))
    for state in states.split()
}
STATES = [name for name in TASKS if not name.startswith("areas")]
WEIGHTS = Weights()
SEARCH = fw.Annealing(chains=2, steps=3000)
COLUMNS = {
    "task": pl.String, "schedule": pl.String, "seed": pl.Int64, "k": pl.Int64, "regret": pl.Float64,
    "mean_epsilon": pl.Float64, "at_first": pl.Float64, "lost": pl.Int64, "stated": pl.Float64,
    "expected_now": pl.Float64, "expected_after": pl.Float64, "answered": pl.Float64,
}  # fmt: skip
MIXED = {
    "task": pl.String, "seed": pl.Int64, "k": pl.Int64, "covered": pl.Float64, "federations": pl.Int64,
    "regret": pl.Float64, "regret_lowest": pl.Float64,
}  # fmt: skip
Row = dict[str, Any]


class Bench:
    """One task: exact counts, and the best federation of each size."""

    def __init__(self, name: str, ks: list[int]) -> None:
        task, file, year, options = (TASKS | DEVELOPMENT | FURTHER)[name]
        loaded = acs.read(task, DATA / file, features="paper", year=year, **options)
        self.name = name
        self._count(loaded.schema, loaded.clients, ks)

    def _count(self, schema: fw.Schema, frames: dict[str, pl.DataFrame], ks: list[int]) -> None:
        self.schema, self.clients = schema, tuple(frames)
        self.layout = plan(schema, float("inf")).layout
        self.codes = [schema.encode(rows) for rows in frames.values()]
        self.exact = np.stack([count(codes, self.layout).exact for codes in self.codes])
        self.truth = Estimates.plain(self.clients, self.schema, self.layout, self.exact.astype(np.float64))
        long = fw.Annealing(chains=4, steps=5000)
        self.best = {k: fw.select(self.truth, k, method=long, evidence="none") for k in ks}

    def noisy(self, sigmas: np.ndarray, seed: int, stage: int) -> np.ndarray:
        """Counts with rounded normal noise; sigmas of each table, or of each client and table."""
        noise = np.random.default_rng([seed, stage, 77]).standard_normal(self.exact.shape)
        return np.rint(self.exact + noise * self.layout.per_cell(sigmas))

    def regret(self, pool: Pool, k: int, *, answered: bool = False) -> float:
        """True loss of the selection above the best of this size."""
        found = fw.select(pool, k, method=SEARCH, evidence="none", threads=1, answered=answered)
        members = pool.index(found.clients)
        return loss(self.truth, members, WEIGHTS) - self.best[k].loss


def spend(clients: tuple[str, ...], made: Plan, stages: np.ndarray) -> list[Spending]:
    """What every client has spent after its last stage."""
    parts = [
        Part(plan=made.digest, stage=n, epsilon=stage.epsilon, delta=made.delta, mu=stage.mu)
        for n, stage in enumerate(made.staged or (made.stage(1),), 1)
    ]
    return [Spending(name, tuple(parts[:n])) for name, n in zip(clients, stages, strict=True)]


def run_schedule(bench: Bench, schedule: str, seed: int, k: int) -> Row:
    """One draw of one schedule."""
    schedule, _, waves = schedule.partition("/")
    if "s" in schedule:
        return run_scored(bench, schedule, seed, k, int(waves or 1))
    totals = [float(word) for word in schedule.split(",")]
    made = plan(bench.schema, totals[-1], stages=totals if len(totals) > 1 else None)
    clients, everyone = bench.clients, np.ones(len(bench.clients), dtype=np.int64)
    scales = np.array(made.stage(1).sigmas)
    counts, precision = bench.noisy(scales, seed, 1), np.tile(scales**-2.0, (len(clients), 1))
    pool = Pool(
        clients, made, counts, sigmas=scales, simulated=True, spendings=spend(clients, made, everyone)
    )
    row: Row = {"lost": 0, "stated": 0.0, "expected_now": None, "expected_after": None}
    stages = everyone
    turns = [(stage, wave) for stage in range(2, len(totals) + 1) for wave in range(int(waves or 1))]
    for stage, wave in turns:
        size = max(len(clients) // stage if len(totals) > 2 else len(clients) // 2, k)
        found = fw.shortlist(pool, k, size=size, waves=int(waves or 1), seed=seed, threads=1)
        added = np.isin(clients, found.added)
        more = np.where(added[:, None], np.array(made.stage(stage).sigmas) ** -2.0, 0.0)
        drawn = bench.noisy(np.array(made.stage(stage).sigmas), seed, stage)
        weight = bench.layout.per_cell(more / (precision + more))
        counts, precision = (1.0 - weight) * counts + weight * drawn, precision + more
        stages = np.where(added, stage, stages)
        pool = Pool(
            clients,
            made,
            counts,
            sigmas=precision**-0.5,
            simulated=True,
            spendings=spend(clients, made, stages),
        )
        pool.shortlist = found
        if wave == 0:
            row["expected_now"] = found.regret
        lost = len(set(bench.best[k].clients) - set(found.clients))
        row |= {"lost": lost, "stated": found.chance, "expected_after": found.regret_after}
    first = float(np.mean(stages == 1)) if len(totals) > 1 else 1.0
    return row | {
        "regret": bench.regret(pool, k),
        "answered": bench.regret(pool, k, answered=True) if len(totals) > 1 else None,
        "mean_epsilon": float(pool.epsilons.mean()),
        "at_first": first,
    }


def run_scored(bench: Bench, schedule: str, seed: int, k: int, waves: int) -> Row:
    """One draw of a schedule whose second stage asks for a score: half of the clients are asked for tables again.

    The last stage, which carries nearly all of what is known of those asked, sees the draws of the single releases: a
    ratio to these is then one of choices and not of draws.
    """
    totals = [float(word.rstrip("s")) for word in schedule.split(",")]
    made, clients = plan(bench.schema, totals[-1], stages=totals, score=True), bench.clients
    scales = np.array(made.stage(1).sigmas)
    first, last = bench.noisy(scales, seed, 2), bench.noisy(np.array(made.stage(3).sigmas), seed, 1)
    noise = np.random.default_rng([seed, 2, 78]).standard_normal(len(clients))
    stages, asked = np.ones(len(clients), dtype=np.int64), np.zeros(len(clients), dtype=np.bool_)
    sums, found = np.full(len(clients), np.nan), None
    row: Row = {}
    while True:
        more = np.where(asked[:, None], np.array(made.stage(3).sigmas) ** -2.0, 0.0)
        precision = scales**-2.0 + more
        weight = bench.layout.per_cell(more / precision)
        pool = Pool(
            clients, made, (1.0 - weight) * first + weight * last, sigmas=precision**-0.5, simulated=True,
            spendings=spend(clients, made, stages), scores=Scores(sums, np.full(len(clients), made.stage(2).sigmas[0])),
        )  # fmt: skip
        pool.shortlist = found
        if found is not None and found.stage == 3 and found.complete:
            break
        found = fw.shortlist(pool, k, size=max(len(clients) // 2, k), waves=waves, seed=seed, threads=1)
        added = np.isin(clients, found.added)
        stages = np.where(added, found.stage, stages)
        if found.scored is not None:
            exact = np.array([found.scored.of_records(made, codes).sum() for codes in bench.codes])
            sums = np.where(added, np.rint(exact + made.stage(2).drawn[0] * noise) / SCORE_PARTS, sums)
            continue
        asked |= added
        row.setdefault("expected_now", found.regret)
    row["lost"] = len(set(bench.best[k].clients) - set(found.clients))
    return row | {
        "stated": found.chance, "expected_after": found.regret_after, "regret": bench.regret(pool, k),
        "answered": bench.regret(pool, k, answered=True), "mean_epsilon": float(pool.epsilons.mean()),
        "at_first": float(np.mean(~asked)),
    }  # fmt: skip


def run_mixed(bench: Bench, seed: int, ks: list[int]) -> Iterator[Row]:
    """A third of the clients each at 0.1, 0.5 and 2."""
    plans = [plan(bench.schema, epsilon) for epsilon in (0.1, 0.5, 2.0)]
    third = np.random.default_rng([seed, 3]).permutation(len(bench.clients)) % 3
    scales = np.stack([plans[i].sigmas for i in third])
    pool = Pool(bench.clients, plans[1], bench.noisy(scales, seed, 1), sigmas=scales, simulated=True)
    lowest = Pool(
        bench.clients, plans[0], bench.noisy(plans[0].sigmas, seed, 1), sigmas=plans[0].sigmas, simulated=True
    )
    estimates = estimate(pool)
    for k in ks:
        rng = np.random.default_rng([seed, k])
        some = [rng.choice(len(bench.clients), k, replace=False) for _ in range(20)]
        inside = [
            abs(loss(estimates, fed, WEIGHTS) - loss(bench.truth, fed, WEIGHTS))
            <= 1.96 * standard_error(estimates, fed, WEIGHTS)
            for fed in some
        ]
        yield {
            "k": k, "covered": float(np.mean(inside)), "federations": len(some),
            "regret": bench.regret(pool, k), "regret_lowest": bench.regret(lowest, k),
        }  # fmt: skip


def append(path: Path, columns: dict[str, Any], rows: list[Row]) -> None:
    """Add rows to a CSV, with its header if it is new."""
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(columns))
        if new:
            writer.writeheader()
        writer.writerows(rows)


def measure(args: argparse.Namespace, console: Console) -> None:
    """Whatever is not in the files yet."""
    done = set[tuple[Any, ...]]()
    if args.out.exists():
        done = set(pl.read_csv(args.out, schema=COLUMNS).select("task", "schedule", "seed", "k").iter_rows())
    mixed = set[tuple[Any, ...]]()
    if args.mixed.exists():
        mixed = set(pl.read_csv(args.mixed, schema=MIXED).select("task", "seed").iter_rows())
    for name in args.tasks:
        bench = Bench(name, args.ks)
        console.print(
            f"{name}: {len(bench.clients)} clients, {np.median(bench.truth.totals):,.0f} records each"
        )
        for seed in range(*args.seeds):
            for schedule in args.schedules:
                for k in args.ks:
                    if (name, schedule, seed, k) not in done:
                        key = {"task": name, "schedule": schedule, "seed": seed, "k": k}
                        append(args.out, COLUMNS, [key | run_schedule(bench, schedule, seed, k)])
            if args.with_mixed and (name, seed) not in mixed:
                rows = [{"task": name, "seed": seed} | row for row in run_mixed(bench, seed, args.ks)]
                append(args.mixed, MIXED, rows)


def show(args: argparse.Namespace, console: Console) -> bool:
    """Tables of what the files hold; whether the bounds of the project hold."""
    rows = pl.read_csv(args.out, schema=COLUMNS).filter(pl.col("task").is_in(args.tasks))
    table = Table(
        "schedule", "tasks", "draws", "mean ε", "at the first ε", "regret", "left out", "stated", "answered"
    )
    found = rows.group_by("schedule").agg(
        pl.col("task").n_unique(), pl.len(), pl.col("mean_epsilon").mean(), pl.col("at_first").mean(),
        pl.col("regret").mean(), (pl.col("lost") / pl.col("k")).mean(), pl.col("stated").mean(),
        # Where some selections were made without it, a mean would be one of others.
        pl.when(pl.col("answered").null_count() == 0).then(pl.col("answered").mean()),
    )  # fmt: skip
    for row in found.sort("mean_epsilon").iter_rows():
        table.add_row(
            row[0], str(row[1]), str(row[2]), *("" if value is None else f"{value:.4f}" for value in row[3:])
        )
    console.print(table)
    each = rows.group_by("task", "k", "schedule").agg(pl.col("regret").mean()).sort("task", "k", "schedule")
    console.print(each.pivot("schedule", index=["task", "k"], values="regret"))
    if args.mixed.exists():
        seen = pl.read_csv(args.mixed, schema=MIXED).filter(pl.col("task").is_in(args.tasks))
        console.print(seen.select(pl.len(), pl.col("covered", "regret", "regret_lowest").mean()))
    by = {row[0]: row for row in found.iter_rows()}
    if "1" not in by:
        return True
    wanted = [by[name] for name in args.schedules if "," in name and name in by]
    kept = (row[5] <= 1.5 * by["1"][5] and row[6] <= row[7] and row[4] >= 0.5 for row in wanted)
    return all(kept)


def main() -> int:
    """Measure, then show."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", default=STATES, choices=[*TASKS, *DEVELOPMENT, *FURTHER])
    parser.add_argument("--seeds", nargs=2, type=int, default=[10, 20])
    parser.add_argument("--ks", nargs="+", type=int, default=[5, 10, 15])
    parser.add_argument("--schedules", nargs="+", default=["0.1", "0.1,1", "0.1,1/4", "1"])
    parser.add_argument("--out", type=Path, default=Path("stages.csv"))
    parser.add_argument("--mixed", type=Path, default=Path("mixed.csv"))
    parser.add_argument("--no-mixed", dest="with_mixed", action="store_false")
    parser.add_argument("--show", action="store_true", help="only show what was measured")
    parser.add_argument("--quick", action="store_true", help="one task, two draws")
    parser.add_argument("--full", action="store_true", help="all schedules and tasks")
    args = parser.parse_args()
    if args.quick:
        args.tasks, args.seeds = ["travel2024"], [10, 12]
    if args.full:
        args.tasks = list(TASKS)
        args.schedules = [
            "0.1",
            "0.2",
            "0.3",
            "1",
            "0.1,1",
            "0.1,1/2",
            "0.1,1/4",
            "0.2,1",
            "0.3,1",
            "0.1,0.3,1",
        ]
    console = Console(width=120)
    if not args.show:
        measure(args, console)
    return 0 if show(args, console) or args.quick else 1


if __name__ == "__main__":
    sys.exit(main())
