"""How well can be chosen at all: the search of benchmarks/choosing.py with real trainings in place of rehearsals.

    python benchmarks/choosing_oracle.py [--tasks travel2024] [--models mlp logistic] [--metrics auc balanced_accuracy]
                                         [--draws 15]

Every training that the search asks for is done on the clients' rows, with seeds of its own, and tested on all held-out
rows: nobody who chooses before anyone trains knows as much. Who is chosen then trains with the seed of the benchmark
and, twice more, with others. Draws seed the search (and its forecasts' releases), as in the benchmark.

Writes docs/results/choosing_oracle.csv. Needs the census records in ../shared/data.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import choosing
import numpy as np
import polars as pl
from rehearsal_pools import load

from fedwise.rehearsal.trained import Trained
from fedwise.rehearsal.trainings import Task

#: The seed of a stage's trainings is its number, short ones after full ones, and this.
_SEEDS, _SHORT = 10, 100
#: Seeds with which who was chosen trains beside that of the benchmark.
AGAIN = (1, 2)


class RealTrainings:
    """Stands where `Trainings` does, and trains on rows."""

    def __init__(self, truth: choosing.Truth) -> None:
        self._truth = truth

    def train(
        self, tasks: Sequence[Task], done: Callable[[Task, Trained], None] | None = None
    ) -> list[Trained]:
        """Results of all tasks in their order."""
        with ThreadPoolExecutor(2) as threads:
            made = list(threads.map(self._one, tasks))
        for task, trained in zip(tasks, made, strict=True):
            if done is not None:
                done(task, trained)
        return made

    def _one(self, task: Task) -> Trained:
        number = task.stage - _SHORT + 3 if task.stage >= _SHORT else task.stage
        found = self._truth.of(task.clients, _SEEDS + number)
        final = {
            f"{name}:{self._truth.attribute}" if name in choosing.LIMITS else name: value
            for name, value in found.items()
            if "/" not in name
        }
        return Trained(final, {"round": (float(task.settings.rounds),)})


def measure(truth: choosing.Truth, task: str, model: str, metric: str, draw: int) -> dict[str, Any]:
    """One choice."""
    beside = choosing.described(truth, metric)
    values, kept = beside.pop("values"), beside.pop("kept")
    with mock.patch("fedwise.rehearsal.objective.Trainings", return_value=RealTrainings(truth)):
        chosen = choosing.choose(truth, metric, draw)
    real = [truth.of(chosen.clients, seed) for seed in (0, *AGAIN)]
    shares = [float(np.mean(one[metric] > values)) for one in real]
    return {
        "task": task, "model": model, "metric": metric, "draw": draw, "federation": " ".join(chosen.clients),
        "beaten": shares[0], "again": float(np.mean(shares[1:])), "least": min(shares), "most": max(shares),
        "beaten_kept": float(np.mean(real[0][metric] > values[kept])),
        **{f"{name}_kept": real[0][name] <= beside[f"random_{name}"] for name in choosing.LIMITS},
        "agreement": beside["agreement"], "best_kept": beside["best_kept"],
    }  # fmt: skip


def main() -> None:
    """Choose, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=["travel2024"])
    parser.add_argument("--models", nargs="+", default=list(choosing.MODELS))
    parser.add_argument(
        "--metrics", nargs="+", choices=list(choosing.METRICS), default=list(choosing.METRICS)
    )
    parser.add_argument("--draws", nargs="+", type=int, default=[15])
    options = parser.parse_args()
    choosing.BUILD.mkdir(parents=True, exist_ok=True)
    rows = []
    for task, model in itertools.product(options.tasks, options.models):
        truth = choosing.Truth(load(task), model)
        for metric, draw in itertools.product(options.metrics, options.draws):
            rows.append(measure(truth, task, model, metric, draw))
            print(json.dumps(rows[-1]), flush=True)
            pl.DataFrame(rows).write_csv(choosing.OUT / "choosing_oracle.csv", float_precision=5)


if __name__ == "__main__":
    main()
