"""Oracle of a first stage: how good can a shortlist be that everybody's release at a small ε gives?

    python benchmarks/stages_oracle.py [--tasks "areas GA" "areas WA"] [--waves 1 4] [--seeds 10 13] [--ks 5 10 15]
                                       [--out oracle.csv]

The oracle knows every client's number of records and, for each client, the true mean and covariance of all *other*
clients' proportions, over all cells of all tables: what an estimator could learn of the pool at best. With a client's
own row among them they would know the client itself. From a client's noisy tables it computes the normal posterior of
its proportions, and asks the clients of the largest expected gain as `fw.shortlist` does, half of the pool in one or
more waves. Estimates after the last wave are the default's for all. Beside it: the default's shortlist, one at random,
one release at the full ε, and how far the best federation within each shortlist is from the best of all. ``among`` is
the regret where only those asked may be chosen. Needs the census records in ../shared/data.
"""

from __future__ import annotations

import argparse
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from rich.console import Console
from stages import DEVELOPMENT, SEARCH, TASKS, WEIGHTS, Bench, append, spend

import fedwise as fw
from fedwise.estimation import Estimates
from fedwise.estimation.consistency import consistent
from fedwise.objective.information import pointwise
from fedwise.objective.pfl import loss
from fedwise.objective.weights import pair_weights
from fedwise.planning import plan
from fedwise.pool.pool import Pool
from fedwise.search.constraints import Constraints
from fedwise.search.control import Control
from fedwise.search.entry import feasible_sizes
from fedwise.search.gains import expected_gain
from fedwise.search.margins import margins
from fedwise.search.problem import PFL, Problem

KINDS = ("default", "oracle", "random")
COLUMNS = {
    "task": pl.String, "waves": pl.Int64, "seed": pl.Int64, "k": pl.Int64, "one_release": pl.Float64,
    **{f"{kind}_{name}": pl.Float64 for kind in KINDS for name in ("regret", "among", "left_out", "within")},
}  # fmt: skip


def main_axes(bench: Bench) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each client the mean of all others' proportions, and their main axes."""
    own, found = bench.truth.cells / bench.truth.totals[:, None], []
    for i in range(len(own)):
        others = np.delete(own, i, axis=0)
        mean = others.mean(axis=0)
        _, scales, axes = np.linalg.svd((others - mean) / np.sqrt(len(others)), full_matrices=False)
        live = scales > 1e-9
        found.append((mean, axes[live].T * scales[live]))
    return found


class Oracle:
    """Normal posterior of every client's proportions under the true mean and covariance of the others."""

    def __init__(
        self,
        bench: Bench,
        others: list[tuple[np.ndarray, np.ndarray]],
        noisy: np.ndarray,
        sigmas: np.ndarray,
    ) -> None:
        self.bench, self.sizes = bench, bench.truth.totals
        noise = bench.layout.per_cell(sigmas) ** 2 / self.sizes[:, None] ** 2
        means, self.roots = [], []
        for (mean, axes), seen, v in zip(others, noisy / self.sizes[:, None], noise, strict=True):
            covariance = np.linalg.inv(np.eye(axes.shape[1]) + (axes.T / v) @ axes)
            means.append(mean + axes @ (covariance @ (axes.T @ ((seen - mean) / v))))
            self.roots.append(axes @ np.linalg.cholesky(covariance))
        self.means = np.stack(means)

    def estimates(self) -> Estimates:
        """Mean of the tables that the clients may have."""
        bench, layout = self.bench, self.bench.layout
        cells = np.maximum(self.means, 1e-9)
        for j in range(layout.tables):
            here = layout.slice(j)
            cells[:, here] *= (self.sizes / cells[:, here].sum(axis=1))[:, None]
        found, marginals, totals, _ = consistent(cells, layout, np.ones(layout.tables))
        return Estimates(
            bench.clients, bench.schema, layout, np.maximum(found, 0.0), totals, np.maximum(marginals, 0.0),
            "shrinkage",
        )  # fmt: skip

    def gains(self, k: int) -> np.ndarray:
        """By how much asking each client may lower the loss, with the oracle's own margins and spreads."""
        found, layout = self.estimates(), self.bench.layout
        chosen = fw.select(found, k, method=SEARCH, evidence="none", threads=1).clients
        members = np.flatnonzero(np.isin(self.bench.clients, chosen))
        limits = feasible_sizes(Constraints(), found, (k,))[k]
        with Control(threads=1) as control:
            margin = margins(Problem.of(found, PFL(WEIGHTS)), limits, tuple(members), control=control)
        total = found.totals[members].sum()
        whole = found.cells[members].sum(axis=0) / total
        slope = np.zeros(layout.cells)
        for j, weight in enumerate(pair_weights(found.schema, layout, WEIGHTS)):
            here = layout.slice(j)
            slope[here] = weight * pointwise(whole[here].reshape(layout.shapes[j])).ravel()
        spread = [np.linalg.norm(slope @ root) for root in self.roots]
        return expected_gain(margin, np.array(spread) * found.totals / total)


class Stages:
    """One draw of the noise of both stages, whoever answers the second."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self.bench, self.seed = bench, seed
        self.others: list[tuple[np.ndarray, np.ndarray]] = []
        self.made = plan(bench.schema, 1.0, stages=[0.1, 1.0])
        first, more = (np.array(self.made.stage(number).sigmas) for number in (1, 2))
        self.precisions = first**-2.0, more**-2.0
        self.counts = bench.noisy(first, seed, 1), bench.noisy(more, seed, 2)

    def pool(self, asked: np.ndarray) -> Pool:
        """The pool after the asked clients have answered the second stage."""
        clients, (first, more) = self.bench.clients, self.precisions
        precision = first + np.where(asked[:, None], more, 0.0)
        weight = self.bench.layout.per_cell(1.0 - first / precision)
        mixed = (1.0 - weight) * self.counts[0] + weight * self.counts[1]
        spent = spend(clients, self.made, np.where(asked, 2, 1))
        return Pool(clients, self.made, mixed, sigmas=precision**-0.5, simulated=True, spendings=spent)

    def _oracle(self, pool: Pool) -> Oracle:
        self.others = self.others or main_axes(self.bench)
        return Oracle(self.bench, self.others, pool.matrix, pool.sigmas)

    def asked(self, kind: str, k: int, waves: int) -> np.ndarray:
        """Who is asked after all waves."""
        names = self.bench.clients
        size, listed = max(len(names) // 2, k), None
        asked = np.zeros(len(names), dtype=np.bool_)
        chance = np.random.default_rng([self.seed, k, 6]).random(len(names))
        for wave in range(waves):
            pool = self.pool(asked)
            if kind == "default":
                pool.shortlist = listed
                listed = fw.shortlist(pool, k, size=size, waves=waves, seed=self.seed, threads=1)
                asked = np.isin(names, listed.clients)
                continue
            worth = chance if kind == "random" else self._oracle(pool).gains(k)
            number = -(-(size - int(asked.sum())) // (waves - wave))
            asked[np.argsort(np.where(asked, np.inf, -worth), kind="stable")[:number]] = True
        return asked


def measure(bench: Bench, seed: int, k: int, waves: int) -> dict[str, float]:
    """Three shortlists of one draw of the noise."""
    drawn, one = Stages(bench, seed), plan(bench.schema, 1.0)
    names, best = np.array(bench.clients), np.isin(bench.clients, bench.best[k].clients)
    single = Pool(bench.clients, one, bench.noisy(one.sigmas, seed, 1), sigmas=one.sigmas, simulated=True)

    def above(where: Pool | Estimates, asked: np.ndarray) -> float:
        """True loss of the selection among those asked, above the best."""
        out = names[~asked].tolist()
        found = fw.select(where, k, method=SEARCH, evidence="none", threads=1, exclude=out).clients
        return loss(bench.truth, np.flatnonzero(np.isin(names, found)), WEIGHTS) - bench.best[k].loss

    row = {"one_release": bench.regret(single, k)}
    for kind in KINDS:
        asked = drawn.asked(kind, k, waves)
        pool = drawn.pool(asked)
        row[f"{kind}_regret"], row[f"{kind}_among"] = bench.regret(pool, k), above(pool, asked)
        row[f"{kind}_left_out"] = float((best & ~asked).sum() / k)
        row[f"{kind}_within"] = above(bench.truth, asked)
    return row


def main() -> int:
    """Measure what is not in the file yet, then show the means."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tasks", nargs="+", default=["areas GA", "areas WA"], choices=[*TASKS, *DEVELOPMENT]
    )
    parser.add_argument("--waves", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--seeds", nargs=2, type=int, default=[10, 13])
    parser.add_argument("--ks", nargs="+", type=int, default=[5, 10, 15])
    parser.add_argument("--out", type=Path, default=Path("stages_oracle.csv"))
    args = parser.parse_args()
    done = set[tuple[Any, ...]]()
    if args.out.exists():
        done = set(pl.read_csv(args.out, schema=COLUMNS).select("task", "waves", "seed", "k").iter_rows())
    for name in args.tasks:
        bench = Bench(name, args.ks)
        for waves, seed, k in product(args.waves, range(*args.seeds), args.ks):
            if (name, waves, seed, k) not in done:
                key = {"task": name, "waves": waves, "seed": seed, "k": k}
                append(args.out, COLUMNS, [key | measure(bench, seed, k, waves)])
    rows = pl.read_csv(args.out, schema=COLUMNS)
    console = Console(width=200)
    console.print(rows.group_by("waves", "task").agg(pl.exclude("seed", "k").mean()).sort("waves", "task"))
    console.print(rows.group_by("waves").agg(pl.exclude("task", "seed", "k").mean()).sort("waves"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
