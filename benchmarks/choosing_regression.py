"""What the regression of a choice knows of federations that were not rehearsed, with and without forecasts.

    python benchmarks/choosing_regression.py [--tasks income2018 ...] [--models mlp logistic]
                                             [--metrics auc balanced_accuracy] [--draws 15]

Choices that benchmarks/choosing.py has made are gone through again from the rehearsals they kept in build/choosing, and
the regression on all of these is asked about the 200 random federations of that benchmark: rank correlation with their
training on rows, in the metric and both gaps, with forecasts among its features and without, and of the forecast alone.

Writes docs/results/choosing_regression.csv. Needs the census records in ../shared/data.
"""

from __future__ import annotations

import argparse
import itertools
import json
from typing import Any
from unittest import mock

import choosing
import numpy as np
import polars as pl
from rehearsal_pools import federations, load
from scipy.stats import spearmanr

from fedwise.rehearsal.halving import Halving
from fedwise.rehearsal.surrogate import Surrogate

_TRIALS = 160


def halving_of(truth: choosing.Truth, name: str, metric: str, draw: int) -> Halving:
    """The state of a finished choice."""
    made: list[Halving] = []

    def remembered(*given: Any) -> Halving:
        made.append(Halving(*given))
        return made[-1]

    with mock.patch("fedwise.rehearsal.objective.Halving", remembered):
        choosing.choose(truth, metric, draw, trials=_TRIALS, output=choosing.BUILD / f"{name}-{_TRIALS}")
    return made[-1]


def measure(truth: choosing.Truth, name: str, metric: str, draw: int) -> dict[str, float]:
    """Rank correlations of what is said of random federations with their training."""
    search = halving_of(truth, name, metric, draw)
    asked = search.asked
    random = federations(truth.real.clients, choosing.SIZE, choosing.RANDOM, seed=choosing.RANDOM_SEED)
    place = {client: at for at, client in enumerate(asked.clients)}
    members = [tuple(sorted(place[client] for client in one)) for one in random]
    columns = [metric, *choosing.LIMITS]
    real = np.array([[one[column] for column in columns] for one in truth.randoms()[0]])
    assert asked.foreseen is not None
    found: dict[str, float] = {}
    for label, given in (("with", asked.foreseen), ("without", None)):
        made = Surrogate(
            asked.known, search.observations(), asked.goal, level=search.full_stages, foreseen=given
        )
        said = made.predicted(np.stack([made.rows()[list(one)].sum(axis=0) for one in members]))
        found |= {f"{c}_{label}": _rank(said[:, j], real[:, j]) for j, c in enumerate(columns)}
    said = asked.foreseen.of(members)
    return found | {f"{c}_forecast": _rank(said[:, j], real[:, j]) for j, c in enumerate(columns)}


def _rank(one: np.ndarray, other: np.ndarray) -> float:
    return float(spearmanr(one, other).statistic)


def main() -> None:
    """Go through choices again, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=list(choosing.TASKS))
    parser.add_argument("--models", nargs="+", default=list(choosing.MODELS))
    parser.add_argument(
        "--metrics", nargs="+", choices=list(choosing.METRICS), default=list(choosing.METRICS)
    )
    parser.add_argument("--draws", nargs="+", type=int, default=[15])
    options = parser.parse_args()
    rows = []
    for task, model in itertools.product(options.tasks, options.models):
        truth = choosing.Truth(load(task), model)
        for metric, draw in itertools.product(options.metrics, options.draws):
            found = measure(truth, f"{task}-{model}-{metric}-{draw}", metric, draw)
            rows.append({"task": task, "model": model, "metric": metric, "draw": draw})
            # One name for what is maximised, whichever it is.
            rows[-1] |= {key.replace(f"{metric}_", "metric_"): value for key, value in found.items()}
            print(json.dumps(rows[-1]), flush=True)
    pl.DataFrame(rows).write_csv(choosing.OUT / "choosing_regression.csv", float_precision=4)


if __name__ == "__main__":
    main()
