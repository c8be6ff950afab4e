"""Oracle of a first stage: how good can a shortlist be that everybody's release at a small ε gives?

    python benchmarks/stages_oracle.py [--tasks "areas GA" "areas WA"] [--seeds 10 13] [--ks 5 10 15] [--out oracle.csv]

The oracle knows every client's number of records, and the true mean and covariance of the clients' proportions, over
all cells of all tables: what an estimator could learn of the pool at best. From a client's noisy tables it computes the
normal posterior of its proportions; draws from it are searched as `fw.shortlist` searches its own draws, and the
clients that are chosen most often are asked again, half of the pool. The second stage is the default's. Beside it: the
default's shortlist, one at random, one release at the full ε, and how far the best federation within each shortlist is
from the best of all. Needs the census records in ../shared/data.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from rich.console import Console
from stages import SEARCH, TASKS, WEIGHTS, Bench, append

import fedwise as fw
from fedwise.estimation import Estimates
from fedwise.estimation.consistency import consistent
from fedwise.objective.pfl import loss
from fedwise.planning import Plan, plan
from fedwise.pool.pool import Pool

KINDS = ("default", "oracle", "random")
COLUMNS = {
    "task": pl.String, "seed": pl.Int64, "k": pl.Int64, "one_release": pl.Float64,
    **{f"{kind}_{name}": pl.Float64 for kind in KINDS for name in ("regret", "left_out", "within")},
}  # fmt: skip
DRAWS = 24


class Oracle:
    """Normal posterior of every client's proportions under the true mean and covariance of the pool."""

    def __init__(self, bench: Bench, noisy: np.ndarray, sigmas: np.ndarray) -> None:
        self.bench, self.sizes = bench, bench.truth.totals
        own = bench.truth.cells / self.sizes[:, None]
        self.mean = own.mean(axis=0)
        _, scales, axes = np.linalg.svd((own - self.mean) / np.sqrt(len(own)), full_matrices=False)
        live = scales > 1e-9
        self.axes = axes[live].T * scales[live]
        noise = bench.layout.per_cell(sigmas) ** 2 / self.sizes[:, None] ** 2
        seen = noisy / self.sizes[:, None] - self.mean
        self.means, self.roots = [], []
        for deviation, v in zip(seen, noise, strict=True):
            covariance = np.linalg.inv(np.eye(self.axes.shape[1]) + (self.axes.T / v) @ self.axes)
            self.means.append(covariance @ (self.axes.T @ (deviation / v)))
            self.roots.append(np.linalg.cholesky(covariance))

    def draw(self, rng: np.random.Generator | None = None) -> Estimates:
        """Tables that the clients may have, by the oracle; without a generator their mean."""
        places = [
            mean if rng is None else mean + root @ rng.standard_normal(len(mean))
            for mean, root in zip(self.means, self.roots, strict=True)
        ]
        bench, layout = self.bench, self.bench.layout
        cells = np.maximum(self.mean + np.stack(places) @ self.axes.T, 1e-9)
        for j in range(layout.tables):
            here = layout.slice(j)
            cells[:, here] *= (self.sizes / cells[:, here].sum(axis=1))[:, None]
        found, marginals, totals, _ = consistent(cells, layout, np.ones(layout.tables))
        return Estimates(
            bench.clients, bench.schema, layout, np.maximum(found, 0.0), totals, np.maximum(marginals, 0.0),
            "shrinkage",
        )  # fmt: skip

    def chances(self, k: int, seed: int) -> np.ndarray:
        """Share of draws whose best federation holds each client."""
        rng = np.random.default_rng([seed, k, 5])
        found = np.zeros(len(self.bench.clients))
        for _ in range(DRAWS):
            chosen = fw.select(self.draw(rng), k, method=SEARCH, evidence="none", threads=1).clients
            found += np.isin(self.bench.clients, chosen)
        return found / DRAWS


def second(bench: Bench, made: Plan, counts: np.ndarray, asked: np.ndarray, seed: int) -> Pool:
    """The pool after the asked clients have answered the second stage."""
    first, more = (np.array(made.stage(number).sigmas) ** -2.0 for number in (1, 2))
    precision = first + np.where(asked[:, None], more, 0.0)
    weight = bench.layout.per_cell(1.0 - first / precision)
    drawn = bench.noisy(more**-0.5, seed, 2)
    mixed = (1.0 - weight) * counts + weight * drawn
    return Pool(bench.clients, made, mixed, sigmas=precision**-0.5, simulated=True)


def measure(bench: Bench, seed: int, k: int) -> dict[str, float]:
    """Three shortlists of one draw of the noise."""
    made, one = plan(bench.schema, 1.0, stages=[0.1, 1.0]), plan(bench.schema, 1.0)
    sigmas = np.array(made.stage(1).sigmas)
    counts = bench.noisy(sigmas, seed, 1)
    pool = Pool(bench.clients, made, counts, sigmas=sigmas, simulated=True)
    names, best = np.array(bench.clients), np.isin(bench.clients, bench.best[k].clients)
    size = max(len(names) // 2, k)
    listed = fw.shortlist(pool, k, size=size, redraws=DRAWS, seed=seed, threads=1).clients
    chances = {
        "default": np.isin(names, listed).astype(float),
        "oracle": Oracle(bench, counts, sigmas).chances(k, seed),
        "random": np.random.default_rng([seed, k, 6]).random(len(names)),
    }
    single = Pool(bench.clients, one, bench.noisy(one.sigmas, seed, 1), sigmas=one.sigmas, simulated=True)
    row = {"one_release": bench.regret(single, k)}
    for kind, chance in chances.items():
        asked = np.zeros(len(names), dtype=np.bool_)
        asked[np.argsort(-chance, kind="stable")[:size]] = True
        within = fw.select(
            bench.truth, k, method=SEARCH, evidence="none", threads=1, exclude=names[~asked].tolist()
        )
        row[f"{kind}_regret"] = bench.regret(second(bench, made, counts, asked, seed), k)
        row[f"{kind}_left_out"] = float((best & ~asked).sum() / k)
        row[f"{kind}_within"] = loss(bench.truth, np.flatnonzero(np.isin(names, within.clients)), WEIGHTS)
        row[f"{kind}_within"] -= bench.best[k].loss
    return row


def main() -> int:
    """Measure what is not in the file yet, then show the means."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", default=["areas GA", "areas WA"], choices=list(TASKS))
    parser.add_argument("--seeds", nargs=2, type=int, default=[10, 13])
    parser.add_argument("--ks", nargs="+", type=int, default=[5, 10, 15])
    parser.add_argument("--out", type=Path, default=Path("stages_oracle.csv"))
    args = parser.parse_args()
    done = set[tuple[Any, ...]]()
    if args.out.exists():
        done = set(pl.read_csv(args.out, schema=COLUMNS).select("task", "seed", "k").iter_rows())
    for name in args.tasks:
        bench = Bench(name, args.ks)
        for seed in range(*args.seeds):
            for k in args.ks:
                if (name, seed, k) not in done:
                    append(
                        args.out, COLUMNS, [{"task": name, "seed": seed, "k": k} | measure(bench, seed, k)]
                    )
    rows = pl.read_csv(args.out, schema=COLUMNS)
    Console(width=140).print(rows.group_by("task").agg(pl.exclude("seed", "k").mean()).sort("task"))
    Console(width=140).print(rows.select(pl.exclude("task", "seed", "k").mean()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
