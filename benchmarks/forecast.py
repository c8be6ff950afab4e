"""Benchmark of the forecast: predicted against trained metrics of random federations.

    python benchmarks/forecast.py --cache DIR [--quick] [--tasks income,…] [--sizes 5,10,15]
                                  [--models logistic,mlp] [--federations 60] [--random 200] [--out DIR]

For each task, model and size: random federations are trained and tested on the same held-out rows of all
clients; tables come from the training rows only. Written are Spearman's ρ and the mean absolute error of the
forecast for exact tables and ε ∈ {1, 0.3, 0.1}, next to ρ of the PFL with the paper's weights and with weights
calibrated on half of the federations (ρ then over the other half). For the smallest size the federation with the
best forecast balanced accuracy at ε=1, SPD and EOD no worse than the random mean, is trained and ranked
among `--random` random ones and beside training on all clients.

Trained metrics are cached by task, model and federation: a run that was stopped continues. `--rows` caps the
rows of a client (a random part); the network trains on `--thin` rows per client on average. Needs ../shared/data.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from forecast_tasks import DATA, METRICS, TASKS, Task, Trained, Trainer, federations, load, reliability
from scipy.stats import spearmanr

from fedwise.calibration import fit
from fedwise.estimation import estimate
from fedwise.estimation.estimates import Estimates
from fedwise.forecasting import NAMES, Forecast, Forecaster, Settings
from fedwise.objective.pfl import Weights, terms
from fedwise.planning import plan
from fedwise.pool.pool import Pool
from fedwise.search import select

EPSILONS = (math.inf, 1.0, 0.3, 0.1)
CODINGS = ("one-hot", "schema")
#: What a model is forecast with: a network bends along a scaled column as one-hot levels do, a linear model cannot.
MATCHED = {"logistic": "schema", "mlp": "one-hot"}
GOALS: dict[str, Any] = {
    "balanced_accuracy": "utility",
    "f1": "utility",
    "spd": "fairness",
    "eod": "fairness",
}
Members = list[tuple[int, ...]]


def estimates_at(task: Task, epsilon: float, draw: int, allocation: str = "weighted") -> Estimates:
    """Estimates of a simulated release of all clients."""
    asked = plan(task.schema, epsilon, allocation=allocation)  # type: ignore[arg-type]
    rng = np.random.default_rng([draw, int(1000 * min(epsilon, 1e6))])
    noise = np.rint(rng.normal(size=task.exact.shape) * asked.layout.per_cell(asked.sigmas)).astype(np.int64)
    return estimate(Pool(task.clients, asked, task.exact + noise, simulated=True))


def forecasts(forecaster: Forecaster, members: Members) -> np.ndarray:
    """Forecast metrics of federations, shape (federations, metrics) in the order of `NAMES`."""
    return forecaster.values(np.stack([forecaster.rows[list(m)].sum(axis=0) for m in members]))


def truth(trained: list[Trained]) -> dict[str, np.ndarray]:
    """Trained metrics by name."""
    return {metric: np.array([one["all"][metric] for one in trained]) for metric in METRICS}


def compare(
    task: Task, sizes: list[int], number: int, trained: dict[tuple[str, int], list[Trained]], draws: int,
    allocation: str,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """A line for each proxy, ε, noise draw, model, size and metric."""
    members = {k: federations(task, k, number, seed=10) for k in sizes}
    for epsilon in EPSILONS:
        for draw in range(draws if math.isfinite(epsilon) else 1):
            found = estimates_at(task, epsilon, draw, allocation)
            values = {
                (coding, k): forecasts(made, members[k])
                for coding in CODINGS
                for made in [Forecaster(found, settings=Settings(coding=coding))]  # type: ignore[arg-type]
                for k in sizes
            }
            if (epsilon, draw) == (1.0, 0):
                made = Forecaster(found)
                print(f"  {clock(made):.0f} µs an evaluation, {made.design.inputs} inputs", file=sys.stderr)
            for (model, k), results in trained.items():
                real = truth(results)
                about = {"task": task.name, "model": model, "k": k, "epsilon": epsilon, "draw": draw}
                for coding in CODINGS:
                    for metric in METRICS:
                        guess = values[coding, k][:, NAMES.index(metric)]
                        yield about | {
                            "proxy": f"forecast {coding}",
                            "metric": metric,
                            "rho": float(spearmanr(guess, real[metric])[0]),
                            "mae": float(np.abs(guess - real[metric]).mean()),
                            "bias": float((guess - real[metric]).mean()),
                        }
                for proxy, metric, rho in pfl([terms(found, np.array(m)) for m in members[k]], real):
                    yield about | {"proxy": proxy, "metric": metric, "rho": rho, "mae": None, "bias": None}


def pfl(parts: list[Any], real: dict[str, np.ndarray]) -> Iterator[tuple[str, str, float]]:
    """ρ of the PFL: the paper's weights on all federations, calibrated ones on the half not fitted on."""
    values = np.array([[t.direct_bias, t.proxy_bias, t.redundancy, t.signal] for t in parts])
    half = np.arange(len(parts)) % 2 == 0
    fitted = fit(values[half], {m: real[m][half] for m in GOALS}, GOALS)
    for metric in METRICS:
        paper = np.array([t.loss(Weights()) for t in parts])
        ours = np.array([t.loss(fitted) for t in parts])
        yield "PFL paper", metric, float(spearmanr(paper, real[metric])[0])
        yield "PFL calibrated", metric, float(spearmanr(ours[~half], real[metric][~half])[0])


def choose(
    task: Task, trainer: Trainer, members: Members, size: int, coding: str, draw: int
) -> dict[str, Any]:
    """The federation chosen by forecast at ε=1, trained, beside random `members` and all clients."""
    random = truth([trainer(m) for m in members])
    found = estimates_at(task, 1.0, draw)
    forecaster = Forecaster(found, settings=Settings(coding=coding))  # type: ignore[arg-type]
    values = forecasts(forecaster, federations(task, size, 500, seed=12))
    # "No worse than the random mean", in the forecast's own units: its bias cancels.
    limits = {name: float(values[:, NAMES.index(name)].mean()) for name in ("spd", "eod")}
    began = time.process_time()
    objective = Forecast.of(forecaster, "balanced_accuracy", subject_to=limits)
    chosen = select(found, size, objective=objective, seed=0, evidence="none")
    seconds = time.process_time() - began
    members = tuple(sorted(task.clients.index(name) for name in chosen.clients))
    won, every = trainer(members)["all"], trainer(tuple(range(len(task.clients))))["all"]
    ranks = random["balanced_accuracy"]
    fair = (random["spd"] <= random["spd"].mean()) & (random["eod"] <= random["eod"].mean())
    return {
        "task": task.name,
        "model": trainer.model,
        "k": size,
        "coding": coding,
        "draw": draw,
        "clients": " ".join(chosen.clients),
        "search_cpu_seconds": seconds,
        **{f"chosen_{m}": won[m] for m in METRICS},
        **{f"everyone_{m}": every[m] for m in METRICS},
        **{f"random_{m}": float(random[m].mean()) for m in METRICS},
        "random_best": float(ranks.max()),
        "random": len(ranks),
        "beaten_by": float((ranks > won["balanced_accuracy"]).mean()),
        "fair_random": int(fair.sum()),
        "beaten_by_of_fair": float((ranks[fair] > won["balanced_accuracy"]).mean()) if fair.any() else 0.0,
    }


def clock(forecaster: Forecaster) -> float:
    """Processor time of one evaluation, in µs; the best of five batches."""
    many = np.repeat(forecaster.rows[:5].sum(axis=0)[None], 2000, axis=0)
    best = math.inf
    for _ in range(5):
        began = time.process_time()
        forecaster.values(many)
        best = min(best, time.process_time() - began)
    return best / len(many) * 1e6


def averaged(lines: pl.DataFrame) -> pl.DataFrame:
    """Means over noise draws, and the least ρ of them."""
    return lines.group_by("task", "model", "k", "proxy", "epsilon", "metric", maintain_order=True).agg(
        pl.col("rho").mean(),
        pl.col("rho").min().alias("least_rho"),
        pl.col("mae", "bias").cast(pl.Float64).mean(),
        pl.len().alias("draws"),
    )


def show(means: pl.DataFrame) -> None:
    """Mean ρ, a line for each task, model, size and proxy."""
    table = means.with_columns(pl.col("rho").round(2)).pivot(
        on="metric", index=["task", "model", "k", "proxy", "epsilon"], values="rho"
    )
    with pl.Config(tbl_rows=-1, tbl_width_chars=140):
        print(table)


def run(args: argparse.Namespace) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Everything: the comparisons, the chosen federations, and what each metric can tell apart."""
    lines: list[dict[str, Any]] = []
    chosen: list[dict[str, Any]] = []
    told: list[dict[str, Any]] = []
    sizes = [int(k) for k in args.sizes.split(",")]
    for name in args.tasks.split(","):
        task = load(name, args.rows)
        print(f"{name}: {len(task.clients)} clients, {task.rows} training rows", file=sys.stderr, flush=True)
        trained: dict[tuple[str, int], list[Trained]] = {}
        for model in args.models.split(","):
            trainer = Trainer(task, model, args.cache, cap=args.rows, rounds=args.rounds, thin=args.thin)
            for k in sizes:
                members = federations(task, k, args.federations, seed=10)
                trained[model, k] = [trainer(m) for m in members]
                again = (
                    [trainer(m, 1) for m in members] if (model, k) == ("mlp", sizes[0]) else trained[model, k]
                )
                about = {"task": name, "model": model, "k": k, "federations": len(members)}
                for metric, value in reliability(trained[model, k], again).items():
                    spread = float(truth(trained[model, k])[metric].std(ddof=1))
                    told.append(about | {"metric": metric, "reliability": value, "spread": spread})
            # The network is dear to train: with fewer asked for it is ranked among the federations above.
            number = args.random if model == "logistic" else args.random_network
            beside = federations(task, sizes[0], number, seed=11 if number > args.federations else 10)
            for draw in range(args.draws):
                chosen.append(choose(task, trainer, beside, sizes[0], MATCHED[model], draw))
        lines += compare(task, sizes, args.federations, trained, args.draws, args.allocation)
    return pl.DataFrame(lines), pl.DataFrame(chosen), pl.DataFrame(told)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cache", type=Path, required=True, help="directory of trained metrics")
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--sizes", default="5,10,15")
    parser.add_argument("--models", default="logistic,mlp")
    parser.add_argument("--federations", type=int, default=60)
    parser.add_argument("--random", type=int, default=200, help="random federations beside the chosen one")
    parser.add_argument("--random-network", type=int, default=200, help="the same for the network")
    parser.add_argument("--draws", type=int, default=3, help="draws of the noise at each epsilon")
    parser.add_argument("--rows", type=int, default=20_000, help="most rows of a client")
    parser.add_argument(
        "--thin", type=int, default=5_000, help="mean rows per client that the network is trained on"
    )
    parser.add_argument("--rounds", type=int, default=50, help="FedAvg rounds of the network")
    parser.add_argument("--allocation", default="weighted", choices=["weighted", "uniform"])
    parser.add_argument("--out", type=Path, help="directory for forecast*.csv")
    parser.add_argument("--quick", action="store_true", help="three tasks, k=5, logistic, 40 federations")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.quick:
        args.tasks, args.sizes, args.models = "income,public_coverage,travel_time", "5", "logistic"
        args.federations, args.rows, args.random, args.draws = 40, 5_000, 60, 1
    if not DATA.is_dir():
        parser.exit(1, "needs the census records in ../shared/data\n")
    lines, chosen, told = run(args)
    means = averaged(lines)
    tables = {"forecast": means, "forecast_chosen": chosen, "forecast_reliability": told}
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        for name, table in tables.items():
            table.with_columns(pl.col(pl.Float64).round_sig_figs(5)).write_csv(args.out / f"{name}.csv")
    if args.json:
        print(json.dumps({name: table.to_dicts() for name, table in tables.items()}))
        return
    show(means)
    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=200):
        print(told.pivot(on="metric", index=["task", "model", "k"], values="reliability"))
        print(chosen.select("task", "model", "coding", "draw", "beaten_by", "^chosen_.*$", "^random_.*$"))


if __name__ == "__main__":
    main()
