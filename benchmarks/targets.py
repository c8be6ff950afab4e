"""Targets: one release for three tasks on census records; does the loss rank federations as training does?

    python benchmarks/targets.py --data ../shared/data/acs2024_person.parquet -o docs/results/targets.csv

Three targets in one schema: income above 70,000 dollars (two classes), the quarter of income (four classes, public
edges) and hours worked a week (a number in public bins, trained as the raw number). Twenty states of 1,500 working
adults each; sex, and sex crossed with race, as attributes. Random federations of five are trained by FedAvg and tested
on the held-out rows of all states. For each target and ε the table has Spearman's ρ of −loss, and of the forecast and
the rehearsed metric, with the trained metric (AUC, macro-F1, −RMSE), and the ceiling: ρ of a second training, with
another seed, with the first.

`--compare SEEDS` instead writes which federations one release for three tasks chooses beside releases of single tasks.
"""

from __future__ import annotations

import argparse
import csv
import math
from pathlib import Path

import numpy as np
import polars as pl
from scipy.stats import spearmanr

import fedwise as fw
from fedwise.objective.pfl import federation_terms
from fedwise.training.comparison import Comparison

STATES, ROWS, K = 20, 1500, 5
METRICS = {"rich": "auc", "quarter": "macro_f1", "hours": "rmse"}
RACES = ("white", "black", "asian", "other")


def schema() -> fw.Schema:
    """Public domains: the census' own codes."""
    sex = fw.Column("SEX", "sensitive", levels=(1, 2))
    race = fw.Column("RACE", "sensitive", levels=RACES)
    return fw.Schema(
        (
            fw.Column("AGEP", "feature", bins=(17, 25, 35, 45, 55, 65, 100), model="scaled"),
            fw.Column("SCHL", "feature", bins=(1, 16, 18, 20, 21, 22, 25)),
            fw.Column("MAR", "feature", levels=(1, 2, 3, 4, 5)),
            fw.Column("COW", "feature", levels=(1, 2, 3, 4, 5, 6, 7, 8)),
            sex,
            fw.Column("SEX by RACE", "sensitive", cross=(sex, race), model="drop"),
            fw.Column("rich", "target", rule="PINCP > 70000"),
            fw.Column("quarter", "target", bins=(-20000, 25000, 48000, 80000, 1e7), source=("PINCP",)),
            fw.Column("hours", "target", bins=(1, 20, 35, 40, 45, 55, 100), source=("WKHP",), model="scaled"),
        ),
        name="census",
    )


def frames(path: Path) -> dict[str, pl.DataFrame]:
    """Rows of the first states by code, as many of each."""
    columns = ["ST", "AGEP", "SCHL", "MAR", "COW", "SEX", "RAC1P", "PINCP", "WKHP"]
    rows = (
        pl.scan_parquet(path)
        .select(columns)
        .filter((pl.col("AGEP") >= 17) & (pl.col("WKHP") > 0) & (pl.col("PINCP") > -20000))
        .filter(pl.col("COW").is_between(1, 8))
        .drop_nulls()
        .with_columns(
            pl.when(pl.col("RAC1P") == 1).then(pl.lit("white")).when(pl.col("RAC1P") == 2).then(pl.lit("black"))
            .when(pl.col("RAC1P") == 6).then(pl.lit("asian")).otherwise(pl.lit("other")).alias("RACE")
        )
        .collect()
    )  # fmt: skip
    states = sorted(rows["ST"].unique().to_list(), key=str)[:STATES]
    return {f"S{state}": rows.filter(pl.col("ST") == state).sample(ROWS, seed=0) for state in states}


def pool_of(data: dict[str, pl.DataFrame], asked: fw.Schema, epsilon: float, seed: int) -> fw.Pool:
    """Releases of all states under one plan."""
    plan = fw.plan(asked, epsilon)
    exact = math.isinf(epsilon)
    return fw.Pool.of(
        fw.release(
            plan,
            frame,
            client=name,
            no_privacy=exact,
            simulated=not exact,
            seed=None if exact else 100 * seed + i,
        )
        for i, (name, frame) in enumerate(data.items())
    )


def correlations(
    data: dict[str, pl.DataFrame], count: int, rounds: int, epsilons: list[float], seed: int, out: Path
) -> None:
    """A line for each target and ε."""
    rng = np.random.default_rng(seed)
    names = list(data)
    federations = [sorted(rng.choice(names, K, replace=False).tolist()) for _ in range(count)]
    settings = fw.Training(rounds=rounds, lr=1e-3, replicates=0, evaluate_every=rounds, seed=0)
    ranked = ["loss", "forecast", "rehearsal", "ceiling"]
    write(out, ["target", "metric", "epsilon", "federations", *ranked, "low", "high"])
    pools = {epsilon: pool_of(data, schema(), epsilon, seed) for epsilon in epsilons}
    for target, metric in METRICS.items():
        task = schema().for_target(target)
        named = {f"f{i}": members for i, members in enumerate(federations)}
        sign = -1.0 if metric == "rmse" else 1.0
        reached, again = (
            sign * trained(fw.compare(data, task, named, settings, seeds=[one]), metric, list(named))
            for one in (0, 1)
        )
        for epsilon, pool in pools.items():
            seen = pool.for_target(target)
            members = np.array([seen.index(one) for one in federations])
            terms = federation_terms(fw.estimate(seen), members)
            losses = terms @ np.array(seen.plan.weights.signed)
            forecaster = fw.Forecaster(fw.estimate(seen))
            sums = np.stack([forecaster.rows[one].sum(axis=0) for one in members])
            forecast = sign * forecaster.values(sums, [metric])[:, 0]
            found = fw.rehearse(seen, federations, settings, random=0, everyone=False, stages=2, seed=seed)
            told = np.array([sign * one.value(metric) for one in found.those("federation")])
            ranks = [rho(one, reached) for one in (-losses, forecast, told, again)]
            low, high = f"{reached.min():.4f}", f"{reached.max():.4f}"
            write(out, [target, metric, f"{epsilon:g}", count, *ranks, low, high])


def trained(found: Comparison, metric: str, names: list[str]) -> np.ndarray:
    """The trained metric of each federation."""
    table = found.summary().filter((pl.col("metric") == metric) & (pl.col("attribute") == ""))
    values = dict(zip(table["federation"], table["mean"], strict=True))
    return np.array([values[name] for name in names])


def rho(x: np.ndarray, y: np.ndarray) -> str:
    return f"{spearmanr(x, y).statistic:.3f}"


def comparison(data: dict[str, pl.DataFrame], epsilons: list[float], seeds: int, out: Path) -> None:
    """One release for three tasks beside releases of single tasks: who is chosen, and its loss on exact tables."""
    write(
        out,
        [
            "target",
            "epsilon",
            "seed",
            "releases",
            "epsilon_spent",
            "clients",
            "exact_loss",
            "best_exact_loss",
        ],
    )
    for target in METRICS:
        truth = pool_of(data, schema().for_target(target), math.inf, 0)
        best = fw.select(truth, K, evidence="none")
        for epsilon in epsilons:
            for seed in range(seeds):
                shared = pool_of(data, schema(), epsilon, seed)
                alone = pool_of(data, schema().for_target(target), epsilon, seed)
                for name, pool, times in (
                    ("one for three tasks", shared, 1),
                    ("one for each task", alone, 3),
                ):
                    chosen = fw.select(pool, K, task=target, evidence="none")
                    exact = federation_terms(fw.estimate(truth), truth.index(chosen.clients)[None])[0]
                    loss = float(exact @ np.array(truth.plan.weights.signed))
                    spent = "inf" if math.isinf(epsilon) else f"{composed(pool.plan, times):.2f}"
                    line = [target, f"{epsilon:g}", seed, name, spent, " ".join(chosen.clients)]
                    write(out, [*line, f"{loss:.4f}", f"{best.loss:.4f}"])


def composed(plan: fw.Plan, times: int) -> float:
    """ε of as many releases together, at the plan's δ."""
    from scipy.optimize import brentq

    from fedwise.privacy.scales import gaussian_delta

    mu = plan.mu * math.sqrt(times)
    return (
        float(brentq(lambda e: gaussian_delta(mu, e) - plan.delta, 0.01, 50.0)) if times > 1 else plan.epsilon
    )


def write(path: Path, line: list[object]) -> None:
    with path.open("a", newline="") as file:
        csv.writer(file).writerow(line)


def main() -> None:
    """Write correlations, or the comparison of shared and single releases."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data/acs2024_person.parquet"))
    parser.add_argument("--federations", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, math.inf])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compare", type=int, metavar="SEEDS", help="compare shared with single releases")
    parser.add_argument("-o", "--output", type=Path, default=Path("targets.csv"))
    asked = parser.parse_args()
    data = frames(asked.data)
    if asked.compare:
        comparison(data, asked.epsilon, asked.compare, asked.output)
    else:
        correlations(data, asked.federations, asked.rounds, asked.epsilon, asked.seed, asked.output)


if __name__ == "__main__":
    main()
