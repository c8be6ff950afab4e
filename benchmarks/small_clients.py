"""Benchmark of small clients: regret of the default against paper mode, and what an oracle would have.

    python benchmarks/small_clients.py [--pools "race, poverty" NY] [--seeds 10 18] [--eps 0.1 0.3 1] [--ks 5 15]
                                       [--out small.csv]

PUMAs of one state are clients of about 1,000 records. Four ways to choose see the same standard normal draws:

- paper:   RDP σ, one for every table; summed, clipped at zero
- default: tight σ, weighted allocation, consistency and shrinkage
- oracle:  the default's noise; the estimator is told every client's exact marginals and the pool's exact odds ratios,
           and shrinks what a client's own noisy table holds beyond that by the best single factor of each table
- bayes:   the default's noise; the estimator is told the sizes and the true mean and covariance of the clients'
           proportions (`stages_oracle.Oracle`) and takes the normal posterior mean

The oracles show how much of the regret comes from what shrinkage does not know. They are no bounds: the default also
keeps a client's deviation along the pool's association, and can be better where there is little noise.

Pools: adults of New York, race and poverty, and of Florida, sex and full-time work, as the laboratory's notes name
them (the notes give no schema, so these are ours); New York's income and Florida's employment task. Nothing was tuned
on them. Needs the census records in ../shared/data.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from rich.console import Console
from stages import DATA, TASKS, Bench
from stages_oracle import Oracle

import fedwise as fw
from fedwise.estimation import Estimates
from fedwise.estimation.consistency import consistent
from fedwise.estimation.fitting import fit
from fedwise.objective.pfl import Weights, loss
from fedwise.planning import plan
from fedwise.pool.pool import Pool

PERSON = "acs2024_person.parquet"
POOLS = {"NY": "income", "FL": "employment"}
FEATURES = """
[columns.AGEP]
role = "feature"
bins = [18, 25, 35, 45, 55, 65, 100]
[columns.SCHL]
role = "feature"
bins = [0, 16, 18, 21, 22, 25]
[columns.MAR]
role = "feature"
levels = [1, 2, 3, 4, 5]
[columns.CIT]
role = "feature"
levels = [1, 2, 3, 4, 5]
[columns.DIS]
role = "feature"
levels = [1, 2]
[columns.MIL]
role = "feature"
levels = [1, 2, 3, 4]
"""
#: State, sensitive and target columns, and the condition under which the target is 1, of the laboratory's pools.
LABORATORY = {
    "race, poverty": (
        "NY",
        '[columns.RACE]\nrole = "sensitive"\nlevels = [1, 2, 3]\n'
        '[columns.SEX]\nrole = "feature"\nlevels = [1, 2]\n',
        pl.col("POVPIP") < 100,
    ),
    "sex, full-time": (
        "FL",
        '[columns.SEX]\nrole = "sensitive"\nlevels = [1, 2]\n'
        '[columns.RACE]\nrole = "feature"\nlevels = [1, 2, 3]\n',
        pl.col("WKHP") >= 35,
    ),
}
COLUMNS = {
    "pool": pl.String, "epsilon": pl.Float64, "seed": pl.Int64, "k": pl.Int64, "paper": pl.Float64,
    "default": pl.Float64, "oracle": pl.Float64, "bayes": pl.Float64,
}  # fmt: skip


class Areas(Bench):
    """Adults of one state by PUMA, in a schema of this file."""

    def __init__(self, name: str, ks: list[int]) -> None:
        state, columns, condition = LABORATORY[name]
        self.name = name
        schema = fw.Schema.parse(
            f'name = "areas"\n{FEATURES}{columns}[columns.LABEL]\nrole = "target"\nlevels = [0, 1]\n'
        )
        rows = (
            pl.scan_parquet(DATA / PERSON)
            .filter(pl.col("ST") == state, pl.col("AGEP") >= 18, pl.col("POVPIP") >= 0)
            .with_columns(
                LABEL=condition.fill_null(False).cast(pl.Int8),
                RACE=pl.when(pl.col("RAC1P") == 1).then(1).when(pl.col("RAC1P") == 2).then(2).otherwise(3),
            )
            .select("PUMA", *schema.names)
            .drop_nulls()
            .collect()
        )
        frames = {
            f"{state}{area[0]}": frame for area, frame in rows.partition_by("PUMA", as_dict=True).items()
        }
        self._count(schema, dict(sorted(frames.items())), ks)


def oracle(bench: Bench, noisy: np.ndarray, sigmas: np.ndarray) -> Estimates:
    """Estimates that know everything but how a client's associations differ from the pool's."""
    layout, truth = bench.layout, bench.truth
    sizes = truth.totals[:, None, None]
    counts = consistent(noisy, layout, sigmas)[0]
    cells = np.empty_like(truth.cells)
    for j, (a, b) in enumerate(layout.shapes):
        here, (x, y) = layout.slice(j), layout.sides(j)
        exact = truth.cells[:, here].reshape(-1, a, b) / sizes
        margins = [truth.marginals[:, side] / truth.totals[:, None] for side in (x, y)]
        expected = fit(exact.mean(axis=0), *margins)
        seen = counts[:, here].reshape(-1, a, b) / truth.totals[:, None, None] - expected
        best = float(np.sum(seen * (exact - expected)) / np.sum(seen**2))
        table = fit(np.maximum(expected + best * seen, 0.0), *margins)
        cells[:, here] = (table * sizes).reshape(len(cells), -1)
    return Estimates(bench.clients, bench.schema, layout, cells, truth.totals, truth.marginals, "shrinkage")


def measure(bench: Bench, epsilon: float, seed: int, k: int) -> dict[str, float]:
    """Regret of the three ways for one draw."""
    paper = plan(bench.schema, epsilon, calibration="rdp", allocation="uniform")
    usual = plan(bench.schema, epsilon)
    noisy = bench.noisy(usual.sigmas, seed, 1)
    told = oracle(bench, noisy, usual.sigmas)
    search = fw.Annealing(chains=2, steps=3000)
    found = fw.select(told, k, method=search, evidence="none", threads=1, weights=Weights())
    posterior = Oracle(bench, noisy, np.tile(usual.sigmas, (len(noisy), 1))).estimates()
    linear = fw.select(posterior, k, method=search, evidence="none", threads=1, weights=Weights())
    plain = Pool(bench.clients, paper, bench.noisy(paper.sigmas, seed, 1), simulated=True)
    chosen = fw.select(plain, k, method=search, evidence="none", threads=1, estimator="plain")
    return {
        "paper": loss(bench.truth, plain.index(chosen.clients), Weights()) - bench.best[k].loss,
        "default": bench.regret(Pool(bench.clients, usual, noisy, simulated=True), k),
        "oracle": loss(bench.truth, plain.index(found.clients), Weights()) - bench.best[k].loss,
        "bayes": loss(bench.truth, plain.index(linear.clients), Weights()) - bench.best[k].loss,
    }


def main() -> int:
    """Measure, then show the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pools", nargs="+", default=list(LABORATORY), choices=[*LABORATORY, *POOLS])
    parser.add_argument("--seeds", nargs=2, type=int, default=[10, 18])
    parser.add_argument("--eps", nargs="+", type=float, default=[0.1, 0.3, 1.0])
    parser.add_argument("--ks", nargs="+", type=int, default=[5, 15])
    parser.add_argument("--out", type=Path, default=Path("small.csv"))
    args = parser.parse_args()
    console = Console(width=100)
    rows: list[dict[str, Any]] = []
    for name in args.pools:
        if name in POOLS:
            TASKS[name] = (POOLS[name], PERSON, 2024, {"by": "PUMA", "only": (name,)})
        bench = Bench(name, args.ks) if name in POOLS else Areas(name, args.ks)
        console.print(
            f"{name}: {len(bench.clients)} areas, {np.median(bench.truth.totals):,.0f} records each"
        )
        for seed in range(*args.seeds):
            for epsilon in args.eps:
                for k in args.ks:
                    key = {"pool": name, "epsilon": epsilon, "seed": seed, "k": k}
                    rows.append(key | measure(bench, epsilon, seed, k))
                    with args.out.open("w", newline="") as file:
                        writer = csv.DictWriter(file, list(COLUMNS))
                        writer.writeheader()
                        writer.writerows(rows)
    means = (
        pl.DataFrame(rows)
        .group_by("pool", "epsilon")
        .agg(pl.col("paper", "default", "oracle", "bayes").mean())
    )
    ratios = means.with_columns(
        (pl.col("default") / pl.col("paper")).alias("default / paper"),
        (pl.col("oracle") / pl.col("paper")).alias("oracle / paper"),
        (pl.col("bayes") / pl.col("paper")).alias("bayes / paper"),
    )
    console.print(ratios.sort("pool", "epsilon"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
