"""Benchmark of the forecast: predicted against trained metrics of random federations.

    python benchmarks/forecast.py --cache DIR [--quick] [--tasks income,…] [--sizes 5,10,15]
                                  [--model logistic,mlp] [--federations 60] [--choose] [--json]

For each task, model and size: random federations are trained and tested on the same held-out rows of all
clients; tables come from the training rows only. Printed are Spearman's ρ and the mean absolute error of the
forecast for exact tables and ε ∈ {1, 0.3, 0.1}, next to ρ of the PFL with the paper's weights and with weights
calibrated on half of the federations (ρ then over the other half). `--choose` also searches by forecast at ε=1 for
the best balanced accuracy with SPD and EOD no worse than the random mean, trains that federation, and ranks
it among `--random` random ones and beside training on all clients.

Trained metrics are cached by task, model and federation: a run that was stopped goes on. `--rows` caps the
rows of a client (a random part) and is said in the output. Needs ../shared/data.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.stats import spearmanr

from fedwise.calibrate import fit
from fedwise.data import acs
from fedwise.data.split import split_all
from fedwise.estimate import estimate
from fedwise.estimate.estimates import Estimates
from fedwise.forecast import NAMES, Forecast, Forecaster, Settings
from fedwise.objective import Weights, terms
from fedwise.plan import Plan, plan
from fedwise.pool import Pool
from fedwise.search import select
from fedwise.tables import count
from fedwise.train.federation import Prepared, prepare
from fedwise.train.simulate import Config, simulate

DATA = Path(__file__).parents[1].parent / "shared" / "data"
TASKS = {
    "income": ("acs2018_income.parquet", None),
    "income_2024": ("acs2024_person.parquet", 2024),
    "public_coverage": ("acs2024_person.parquet", 2024),
    "travel_time": ("acs2024_person.parquet", 2024),
    "employment": ("acs2024_person.parquet", 2024),
}
METRICS = ("accuracy", "balanced_accuracy", "f1", "spd", "eod")
GOALS: dict[str, Any] = {
    "balanced_accuracy": "utility",
    "f1": "utility",
    "spd": "fairness",
    "eod": "fairness",
}


@dataclass
class Task:
    """A task's data, split once: exact tables of the training rows, encoded rows for training."""

    name: str
    clients: tuple[str, ...]
    schema: Any
    exact: np.ndarray
    prepared: Prepared
    rows: int


def load(name: str, cap: int) -> Task:
    """Read a task; a client keeps at most `cap` rows."""
    file, year = TASKS[name]
    loaded = acs.read(name.removesuffix("_2024"), DATA / file, year=year)
    frames = {
        client: frame.sample(cap, seed=1) if frame.height > cap else frame
        for client, frame in loaded.clients.items()
    }
    train, _ = split_all(frames)
    layout = plan(loaded.schema, math.inf).layout
    exact = np.stack([count(loaded.schema.encode(frame), layout).exact for frame in train.values()])
    rows = sum(frame.height for frame in train.values())
    return Task(name, tuple(train), loaded.schema, exact, prepare(frames, loaded.schema), rows)


def estimates_at(task: Task, epsilon: float, seed: int) -> tuple[Estimates, Plan]:
    """Estimates of a simulated release of all clients."""
    asked = plan(task.schema, epsilon)
    rng = np.random.default_rng([seed, int(1000 * min(epsilon, 1e6))])
    noise = np.rint(rng.normal(size=task.exact.shape) * asked.layout.per_cell(asked.sigmas)).astype(np.int64)
    return estimate(Pool(task.clients, asked, task.exact + noise, simulated=True)), asked


def federations(task: Task, size: int, number: int, seed: int) -> list[tuple[int, ...]]:
    """Distinct random federations."""
    rng = np.random.default_rng([seed, size])
    found: dict[tuple[int, ...], None] = {}
    while len(found) < min(number, math.comb(len(task.clients), size)):
        found[tuple(sorted(rng.choice(len(task.clients), size, replace=False).tolist()))] = None
    return list(found)


class Trainer:
    """Trains federations of a task, remembering what it has trained in a file."""

    def __init__(self, task: Task, model: str, cache: Path, cap: int, rounds: int) -> None:
        self.task, self.model, self.rounds = task, model, rounds
        self.path = cache / f"{task.name}-{model}-{cap}-{rounds if model == 'mlp' else 0}.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.known: dict[str, dict[str, float]] = {}
        if self.path.exists():
            for line in self.path.read_text().splitlines():
                entry = json.loads(line)
                self.known[entry.pop("key")] = entry
        self.seconds = 0.0

    def __call__(self, members: tuple[int, ...]) -> dict[str, float]:
        """Metrics of the federation on the held-out rows of all clients."""
        names = [self.task.clients[i] for i in members]
        key = hashlib.sha256(",".join(names).encode()).hexdigest()[:16]
        if key not in self.known:
            began = time.perf_counter()
            self.known[key] = self._logistic(names) if self.model == "logistic" else self._mlp(names)
            self.seconds += time.perf_counter() - began
            with self.path.open("a") as file:
                file.write(json.dumps({"key": key, **self.known[key]}) + "\n")
        return self.known[key]

    def _logistic(self, names: list[str]) -> dict[str, float]:
        """Logistic regression on the federation's rows together, by Newton's method."""
        prepared = self.task.prepared
        x = np.concatenate([prepared.train[name].matrix for name in names])
        x = np.concatenate([np.ones((len(x), 1), np.float32), x], axis=1)
        y = np.concatenate([prepared.train[name].y for name in names])
        beta = np.zeros(x.shape[1])
        for _ in range(15):
            chance = 1 / (1 + np.exp(-(x @ beta.astype(np.float32)).astype(float)))
            weight = np.maximum(chance * (1 - chance), 1e-6).astype(np.float32)
            hessian = ((x * weight[:, None]).T @ x).astype(float) + np.eye(x.shape[1])
            step = np.linalg.solve(hessian, x.T @ (y - chance).astype(np.float32) - beta)
            beta += step
            if np.abs(step).max() < 1e-4:
                break
        held = prepared.held_out
        scores = beta[0] + held.matrix @ beta[1:].astype(np.float32)
        return measured(scores > 0, held.y > 0.5, held.groups[0])

    def _mlp(self, names: list[str]) -> dict[str, float]:
        """The paper's network by FedAvg."""
        config = Config(rounds=self.rounds, model="mlp", evaluate_every=self.rounds, replicates=0)
        done = simulate(self.task.prepared, names, config)
        attribute = self.task.prepared.encoder.attributes[0]
        plain = {name: done.value(name) for name in ("accuracy", "balanced_accuracy", "f1")}
        return plain | {name: done.value(name, attribute=attribute) for name in ("spd", "eod")}


def measured(yes: np.ndarray, y: np.ndarray, group: np.ndarray) -> dict[str, float]:
    """Metrics of predictions."""
    recall, specificity = yes[y].mean(), 1 - yes[~y].mean()
    rates = [yes[group == g].mean() for g in np.unique(group)]
    true = [yes[(group == g) & y].mean() for g in np.unique(group)]
    return {
        "accuracy": float((yes == y).mean()),
        "balanced_accuracy": float((recall + specificity) / 2),
        "f1": float(2 * (yes & y).sum() / max(yes.sum() + y.sum(), 1)),
        "spd": float(max(rates) - min(rates)),
        "eod": float(max(true) - min(true)),
    }


def noise_of_test(task: Task, metric: str, values: np.ndarray) -> float:
    """Rough standard error of a trained metric from the finite test set."""
    held = task.prepared.held_out
    positive = float((held.y > 0.5).sum())
    size = {"accuracy": len(held), "balanced_accuracy": positive * 2, "f1": positive, "spd": len(held) / 4,
            "eod": positive / 4}[metric]  # fmt: skip
    return float(0.5 / math.sqrt(size))


def compare(
    task: Task, members: list[tuple[int, ...]], trained: list[dict[str, float]], coding: str
) -> dict[str, Any]:
    """ρ and error of forecasts at every ε, and ρ of the PFL."""
    truth = {metric: np.array([t[metric] for t in trained]) for metric in METRICS}
    out: dict[str, Any] = {
        "spread": {m: float(v.std()) for m, v in truth.items()},
        "test_noise": {m: noise_of_test(task, m, v) for m, v in truth.items()},
        "forecast": {},
        "pfl": {},
    }
    for epsilon in (math.inf, 1.0, 0.3, 0.1):
        found, _ = estimates_at(task, epsilon, seed=0)
        forecaster = Forecaster(found, settings=Settings(coding=coding))  # type: ignore[arg-type]
        values = forecaster.values(np.stack([forecaster.rows[list(m)].sum(axis=0) for m in members]))
        if epsilon == 1.0:
            many = np.repeat(forecaster.rows[list(members[0])].sum(axis=0)[None], 2000, axis=0)
            began = time.process_time()
            forecaster.values(many)
            out["inputs"] = forecaster.design.inputs
            out["evaluation_us"] = (time.process_time() - began) / len(many) * 1e6
        out["forecast"][str(epsilon)] = {
            metric: {
                "rho": float(spearmanr(values[:, NAMES.index(metric)], truth[metric])[0]),
                "mae": float(np.abs(values[:, NAMES.index(metric)] - truth[metric]).mean()),
                "bias": float((values[:, NAMES.index(metric)] - truth[metric]).mean()),
            }
            for metric in METRICS
        }
        if epsilon in (math.inf, 1.0):
            parts = [terms(found, np.array(m)) for m in members]
            out["pfl"][str(epsilon)] = pfl(parts, truth)
    return out


def pfl(parts: list[Any], truth: dict[str, np.ndarray]) -> dict[str, dict[str, float]]:
    """ρ of the PFL: the paper's weights on all federations, calibrated ones on the half not fitted on."""
    values = np.array([[t.direct_bias, t.proxy_bias, t.redundancy, t.signal] for t in parts])
    half = np.arange(len(parts)) % 2 == 0
    fitted = fit(values[half], {m: truth[m][half] for m in GOALS}, GOALS)

    def losses(weights: Weights) -> np.ndarray:
        return np.array([t.loss(weights) for t in parts])

    return {
        "paper": {m: float(spearmanr(losses(Weights()), truth[m])[0]) for m in METRICS},
        "calibrated": {m: float(spearmanr(losses(fitted)[~half], truth[m][~half])[0]) for m in METRICS},
    }


def choose(task: Task, trainer: Trainer, size: int, number: int, coding: str) -> dict[str, Any]:
    """The federation chosen by forecast at ε=1, trained, beside random ones and all clients."""
    random = [trainer(m) for m in federations(task, size, number, seed=11)]
    found, _ = estimates_at(task, 1.0, seed=0)
    forecaster = Forecaster(found, settings=Settings(coding=coding))  # type: ignore[arg-type]
    sample = federations(task, size, 500, seed=12)
    values = forecaster.values(np.stack([forecaster.rows[list(m)].sum(axis=0) for m in sample]))
    # "No worse than the random mean", in the forecast's own units: its bias cancels.
    limits = {name: float(values[:, NAMES.index(name)].mean()) for name in ("spd", "eod")}
    began = time.process_time()
    objective = Forecast.of(forecaster, "balanced_accuracy", subject_to=limits)
    chosen = select(found, size, objective=objective, seed=0, evidence="none")
    seconds = time.process_time() - began
    members = tuple(sorted(task.clients.index(name) for name in chosen.clients))
    won, every = trainer(members), trainer(tuple(range(len(task.clients))))
    ranks = np.array([r["balanced_accuracy"] for r in random])
    means = {m: float(np.mean([r[m] for r in random])) for m in METRICS}
    fair = np.array([r["spd"] <= means["spd"] and r["eod"] <= means["eod"] for r in random])
    return {
        "clients": list(chosen.clients),
        "search_cpu_seconds": seconds,
        "evaluations": chosen.evaluations,
        "trained": won,
        "all_clients": every,
        "random_mean": means,
        "limits_kept_when_trained": {m: bool(won[m] <= means[m]) for m in ("spd", "eod")},
        "random": len(random),
        "random_best": float(ranks.max()),
        "beaten_by": float((ranks > won["balanced_accuracy"]).mean()),
        "fair_random": int(fair.sum()),
        "beaten_by_of_fair": float((ranks[fair] > won["balanced_accuracy"]).mean()) if fair.any() else 0.0,
        "in_best_5_percent": bool((ranks > won["balanced_accuracy"]).mean() <= 0.05),
    }


def show(title: str, found: dict[str, Any]) -> None:
    """Print one comparison."""
    print(f"\n{title}")
    print(f"  {'':<22}" + "".join(f"{m:>22}" for m in METRICS))
    spread = "".join(f"{found['spread'][m]:>13.4f} ({found['test_noise'][m]:.4f})" for m in METRICS)
    print(f"  {'spread (test noise)':<22}{spread}")
    print(f"  {found['evaluation_us']:.0f} µs an evaluation with {found['inputs']} inputs")
    for epsilon, row in found["forecast"].items():
        cells = "".join(f"{row[m]['rho']:>+11.2f} mae {row[m]['mae']:.4f} " for m in METRICS)
        print(f"  {'forecast ε=' + epsilon:<22}{cells}")
    for epsilon, rows in found["pfl"].items():
        for name, row in rows.items():
            print(f"  {'PFL ' + name + ' ε=' + epsilon:<22}" + "".join(f"{row[m]:>+22.2f}" for m in METRICS))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cache", type=Path, required=True, help="directory of trained metrics")
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--sizes", default="5,10,15")
    parser.add_argument("--model", default="logistic,mlp")
    parser.add_argument("--federations", type=int, default=60)
    parser.add_argument("--random", type=int, default=200)
    parser.add_argument("--rows", type=int, default=20_000, help="most rows of a client")
    parser.add_argument("--rounds", type=int, default=50, help="FedAvg rounds of the MLP")
    parser.add_argument("--coding", default="one-hot", choices=["one-hot", "schema"])
    parser.add_argument("--choose", action="store_true")
    parser.add_argument(
        "--quick", action="store_true", help="three tasks, k=5, logistic, 40 federations, 5,000 rows"
    )
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.quick:
        args.tasks, args.sizes, args.model = "income,public_coverage,travel_time", "5", "logistic"
        args.federations, args.rows, args.random = 40, 5_000, 60
    if not DATA.is_dir():
        parser.exit(1, "needs the census records in ../shared/data\n")
    results: dict[str, Any] = {"rows_cap": args.rows}
    for name in args.tasks.split(","):
        task = load(name, args.rows)
        if not args.json:
            print(
                f"\n{name}: {len(task.clients)} clients, {task.rows} training rows (at most {args.rows} a client)"
            )
        for model in args.model.split(","):
            trainer = Trainer(task, model, args.cache, args.rows, args.rounds)
            for size in (int(k) for k in args.sizes.split(",")):
                members = federations(task, size, args.federations, seed=10)
                found = compare(task, members, [trainer(m) for m in members], args.coding)
                results[f"{name}/{model}/{size}"] = found
                if not args.json:
                    show(f"{name}, {model}, k={size}, {len(members)} federations", found)
                if args.choose:
                    chosen = choose(task, trainer, size, args.random, args.coding)
                    results[f"{name}/{model}/{size}"]["chosen"] = chosen
                    if not args.json:
                        print("  chosen:", json.dumps(chosen))
    if args.json:
        print(json.dumps(results, indent=2))


if __name__ == "__main__":
    pl.Config.set_tbl_rows(5)
    main()
