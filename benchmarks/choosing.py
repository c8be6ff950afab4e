"""Benchmark of choosing by rehearsal: does the federation it picks train a better model, and keep its limits?

    python benchmarks/choosing.py [--tasks income2018 ...] [--models mlp logistic] [--metrics auc balanced_accuracy]
                                  [--draws 0 1] [--trials 160] [--page]

`fw.select` with ``fw.Rehearsal("auc", subject_to={"spd:SEX": "random", "eod:SEX": "random"})``, and the same with
balanced accuracy, sees releases at ε = 1 alone: pairs for the network, joint tables for logistic regression. The chosen
federation then trains on real rows, and is compared with the 200 random federations of the same size that
experiments/evidence.py trained the same way (docs/results/evidence.parquet, split 0): share beaten in the metric, and
whether SPD and EOD at ½ are at most their means. Federations *differ* where the rank correlation of the random ones
between two splits of the rows is at least .7: about half of what is seen is theirs, the rest is rows and seeds. A
federation that breaks a limit could not have been chosen, so the share beaten is also given among the random ones that
keep both, and where none of the ten best of 200 keeps both the page says that no choice can do both. ``--page`` only
writes the page anew from docs/results/choosing.csv.

**What was chosen on what.** Margin and ridge were not tuned on these tasks. Typical references, limits tightened in the
search too, longer short rehearsals, joint tables and the budget (now the library's own: 160 trainings, three stages)
were tried on noise seeds 301 and 302, on Income 2024, PublicCoverage, TravelTime and Employment, all with AUC; the page
has seeds 300 and 301. Balanced accuracy was added afterwards and chose nothing.
The step of logistic regression is the one of three with which federated averaging on *rows* agrees best with the solved
model on PublicCoverage and Income 2024 (docs/results/variants.md). Tables count all training rows of a client, models
are trained on a share of them: tables of that share alone have so much more noise that AUC is ranked worse.

Every training is kept in build/choosing as it ends; a run that was stopped goes on. Writes docs/results/choosing.csv
and choosing.md after each choice. Needs the census records in ../shared/data.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "experiments"))

import census  # noqa: E402
from census import Bundle  # noqa: E402
from measured import Job, measure_all  # noqa: E402
from rehearsal_pools import Real  # noqa: E402
from trained import Recipe  # noqa: E402

import fedwise as fw  # noqa: E402
from fedwise.owner.tables import count  # noqa: E402
from fedwise.planning import plan  # noqa: E402
from fedwise.pool.pool import Pool  # noqa: E402

TASKS = ("income2018", "income2024", "employment2024", "coverage2024", "travel2024")
MODELS = ("mlp", "logistic")
BUILD, OUT = ROOT / "build" / "choosing", ROOT / "docs" / "results"
SIZE, FIRST_DRAW, ROUNDS = 5, 300, 20
#: Federations differ where their AUC on two splits of the rows has at least this rank correlation.
DIFFER = 0.7
METRICS = {"auc": "AUC", "balanced_accuracy": "balanced accuracy"}
LIMITS = {"spd:SEX": "spd", "eod:SEX": "eod"}


def training(model: str, share: float) -> fw.Training:
    """As experiments/trained.py trains: the network by averaging; logistic regression nearly to its end."""
    return fw.Training(rounds=ROUNDS, lr=1e-3 if model == "mlp" else 3e-3, model=model, test=1 - share)


def releases(bundle: Bundle, task: str, model: str, seed: int) -> Pool:
    """Releases at ε = 1 of all training rows: joint tables for logistic regression, pairs for the network."""
    if model != "logistic":
        return bundle.sex.pool(1.0, seed=seed)
    frames = census.training_frames(task)
    asked = plan(bundle.sex.schema, math.inf, joint=True)
    exact = np.stack([count(asked.schema.encode(rows), asked.layout).exact for rows in frames.values()])
    real = Real(task, bundle.sex.schema, tuple(frames), exact, bundle.prepared)
    return real.pool(1.0, seed, joint=True)


def randoms(task: str, model: str) -> pl.DataFrame:
    """Random federations that were trained on real rows, on every split."""
    return pl.read_parquet(OUT / "evidence.parquet").filter(
        (pl.col("task") == task)
        & (pl.col("k") == SIZE)
        & (pl.col("model") == model)
        & (pl.col("kind") == "random")
    )


def keeping(task: str, model: str, metric: str) -> tuple[np.ndarray, int]:
    """The metric of the random federations that keep both limits, and how many of these are in the best 5% of all."""
    random = randoms(task, model).filter(split=0)
    kept = random.filter(pl.all_horizontal(pl.col(name) <= pl.col(name).mean() for name in LIMITS.values()))
    values, best = kept[metric].cast(pl.Float64), random[metric].cast(pl.Float64).quantile(0.95)
    return values.to_numpy(), int((values >= best).sum())


def agreement(task: str, model: str, metric: str) -> float:
    """Rank correlation of their metric between two splits of the rows."""
    trained = randoms(task, model)
    first, second = (trained.filter(split=at).select("federation", metric) for at in (0, 1))
    both = first.join(second, on="federation", suffix="_again")
    return float(both.select(pl.corr(metric, f"{metric}_again", method="spearman")).item())


def measure(task: str, model: str, metric: str, draw: int, options: argparse.Namespace) -> dict[str, Any]:
    """One choice, trained on real rows, beside the random federations."""
    began = time.process_time()
    bundle = census.load(task, mean_rows=4000, test_rows=30_000)
    objective = fw.Rehearsal(
        metric, subject_to=dict.fromkeys(LIMITS, "random"), settings=training(model, bundle.share),
        trials=options.trials, stages=options.stages, output=BUILD / f"{task}-{model}-{metric}-{draw}",
    )  # fmt: skip
    pool = releases(bundle, task, model, FIRST_DRAW + draw)
    chosen = fw.select(pool, SIZE, objective=objective, seed=draw, evidence="none")
    spent = time.process_time() - began
    job = Job(chosen.clients, Recipe(model, rounds=ROUNDS, seed=0))
    real = measure_all(bundle.prepared, [job], cache=BUILD / "real", jobs=1)[0]
    random = randoms(task, model).filter(split=0)
    values = random[metric].cast(pl.Float64).to_numpy()
    found: dict[str, Any] = {
        "task": task, "model": model, "metric": metric, "draw": draw, "federation": " ".join(chosen.clients),
        "value": real[metric], "random": float(values.mean()), "random_std": float(values.std()),
        "beaten": float(np.mean(real[metric] > values)), "rehearsed": -chosen.loss,
    }  # fmt: skip
    for name in LIMITS.values():
        limit = float(random[name].cast(pl.Float64).mean())  # type: ignore[arg-type]
        found |= {name: real[name], f"random_{name}": limit, f"{name}_kept": real[name] <= limit}
    return found | {"trials": chosen.evaluations, "stages": options.stages, "seconds": round(spent, 1)}


def figured(table: pl.DataFrame) -> pl.DataFrame:
    """The table with what is known of each task, model and metric from the random federations."""
    keys = [tuple(key) for key in table.select("task", "model", "metric").iter_rows()]
    agree, kept = {key: agreement(*key) for key in set(keys)}, {key: keeping(*key) for key in set(keys)}
    values = zip(keys, table["value"], strict=True)
    return table.with_columns(
        agreement=pl.Series([agree[key] for key in keys]),
        differ=pl.Series([agree[key] >= DIFFER for key in keys]),
        beaten_kept=pl.Series([float(np.mean(value > kept[key][0])) for key, value in values]),
        best_kept=pl.Series([kept[key][1] for key in keys]),
    )


def write(table: pl.DataFrame) -> None:
    """The table for machines and the page for people."""
    table = figured(table)
    table.write_csv(OUT / "choosing.csv", float_precision=5)
    lines = [
        "# Choosing by rehearsal",
        "",
        "Generated by `benchmarks/choosing.py`. The federation of five with the best rehearsed AUC, or balanced "
        "accuracy, whose rehearsed SPD and EOD (at ½) are no worse than those of random ones, from releases at ε = 1 "
        "(pairs for the network, joint tables for logistic regression); then trained on real rows. "
        "*Beaten*: share of 200 random federations, trained the same way, with a lower value. *Agreement*: rank "
        "correlation of their values between two splits of the rows, which says how far federations differ at all. "
        "*Of those allowed*: the share beaten among the random ones that keep both limits. *Best allowed*: how many "
        "of the ten best of 200 keep both; where none does, no choice is known that does both. "
        "Limits: the means of those 200; ✗ marks a limit that was missed. "
        f"{table['trials'].max()} trainings a choice. The search was developed on the noise of draws 1 and 2 (seeds "
        "301 and 302) with AUC; draw 0 chose nothing, nor did balanced accuracy.",
        "",
    ]
    for metric, words in METRICS.items():
        some = table.filter(metric=metric)
        if len(some):
            lines += [f"## By {words}", "", *_rows(some), "", _sentence(some), ""]
    kept = int(table["spd_kept"].sum() + table["eod_kept"].sum())
    both = int((table["spd_kept"] & table["eod_kept"]).sum())
    lines += [
        f"Limits kept, all together: {kept} of {2 * len(table)} ({kept / len(table) / 2:.0%}), both of them in {both} "
        f"of {len(table)} choices (the project asks for 80%). A choice took "
        f"{float(table['seconds'].mean()):.0f} s of one core on average.",  # type: ignore[arg-type]
        "",
    ]
    (OUT / "choosing.md").write_text("\n".join(lines))


def _rows(table: pl.DataFrame) -> list[str]:
    lines = [
        "| task | model | draw | agreement | value | random | beaten | of those allowed | best allowed "
        "| SPD | limit | EOD | limit |",
        "|" + "---|" * 13,
    ]
    for row in table.sort("task", "model", "draw").iter_rows(named=True):
        gaps = [
            f"{row[n]:.3f}{'' if row[f'{n}_kept'] else ' ✗'} | {row[f'random_{n}']:.3f}"
            for n in LIMITS.values()
        ]
        cells = [
            row["task"], row["model"], row["draw"], f"{row['agreement']:.2f}", f"{row['value']:.4f}",
            f"{row['random']:.4f}", f"{row['beaten']:.0%}", f"{row['beaten_kept']:.0%}", row["best_kept"], *gaps,
        ]  # fmt: skip
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def _sentence(table: pl.DataFrame) -> str:
    """How many choices are in the best 5%, where that can be told and can be had."""
    differ = table.filter(pl.col("differ"))
    can = differ.filter(pl.col("best_kept") > 0)
    top = {name: int((some["beaten"] >= 0.95).sum()) for name, some in (("all", differ), ("can", can))}
    allowed = int((differ["beaten_kept"] >= 0.95).sum())
    kept = int(table["spd_kept"].sum() + table["eod_kept"].sum())
    return (
        f"In the best 5% of random federations: {top['all']} of {len(differ)} choices where federations differ "
        f"(agreement at least {DIFFER}); {top['can']} of {len(can)} where some of the best 5% keep both limits. In the "
        f"best 5% of those that keep both limits: {allowed} of {len(differ)}. Limits kept: {kept} of {2 * len(table)}."
    )


def main() -> None:
    """Choose, train, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=list(TASKS))
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--metrics", nargs="+", choices=list(METRICS), default=list(METRICS))
    parser.add_argument("--draws", nargs="+", type=int, default=[0], help="which draws of the noise")
    parser.add_argument("--trials", type=int, default=160)
    parser.add_argument("--stages", type=int, default=3)
    parser.add_argument("--page", action="store_true", help="only the page, from the table there is")
    options = parser.parse_args()
    if options.page:
        write(pl.read_csv(OUT / "choosing.csv"))
        return
    rows: list[dict[str, Any]] = []
    for draw, metric, task, model in itertools.product(
        options.draws, options.metrics, options.tasks, options.models
    ):
        kept = BUILD / f"{task}-{model}-{metric}-{draw}-{options.trials}.json"
        if kept.exists():
            rows.append(json.loads(kept.read_text()))
        else:
            rows.append(measure(task, model, metric, draw, options))
            kept.write_text(json.dumps(rows[-1]))
        print(json.dumps(rows[-1]), flush=True)
        write(pl.DataFrame(rows))


if __name__ == "__main__":
    main()
