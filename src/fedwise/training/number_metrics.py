"""Number metrics: how far predicted numbers are off, overall and between groups, in the target's own unit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .confusion import gap, ratio, signed_gap
from .encoding import Rows
from .task import Task
from .values import Value, weighted_draws

Floats = npt.NDArray[np.float64]

#: Metrics of all rows together, in the order they are reported.
PLAIN = ("loss", "mae", "rmse", "r2")
#: Metrics of each sensitive attribute: gaps of the mean error (predicted − true) and of the mean absolute error.
FAIRNESS = ("error_gap", "mae_gap", "error_gap_signed")


def evaluate_numbers(
    scores: npt.NDArray[Any], rows: Rows, attributes: Sequence[str], task: Task
) -> list[Value]:
    """All metrics of scores, shape (rows,)."""
    if not len(rows):
        values = dict.fromkeys([(name, "") for name in PLAIN], np.array([np.nan]))
        values |= dict.fromkeys([(name, a) for a in attributes for name in FAIRNESS], np.array([np.nan]))
    else:
        values = _measure(scores, rows, attributes, task, np.ones((1, len(rows))))
    return [Value(metric, attribute, float(found[0])) for (metric, attribute), found in values.items()]


def resample_numbers(
    scores: npt.NDArray[Any], rows: Rows, attributes: Sequence[str], task: Task, *, replicates: int,
    rng: np.random.Generator,
) -> dict[tuple[str, str], Floats]:  # fmt: skip
    """Bootstrap replicates of every metric, by metric and attribute."""
    parts = [
        _measure(scores, rows, attributes, task, weights)
        for weights in weighted_draws(len(rows), replicates, rng)
    ]
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def _measure(
    scores: npt.NDArray[Any], rows: Rows, attributes: Sequence[str], task: Task, weights: Floats
) -> dict[tuple[str, str], Floats]:
    """Every metric under each line of weights, shape (lines, rows)."""
    truth = rows.y.astype(np.float64)
    off = (scores.astype(np.float64) - truth) * task.width
    whole = weights.sum(axis=1)
    square = weights @ off**2 / whole
    middle = weights @ truth / whole
    spread = (weights @ truth**2 / whole - middle**2) * task.width**2
    out = {
        ("loss", ""): weights @ task.losses(scores, rows.y) / whole,
        ("mae", ""): weights @ np.abs(off) / whole,
        ("rmse", ""): np.sqrt(square),
        ("r2", ""): 1.0 - ratio(square, spread),
    }
    for i, attribute in enumerate(attributes):
        group = rows.groups[i].astype(np.int64)
        member = np.eye(int(group.max(initial=0)) + 1)[group]
        size = weights @ member
        error = ratio(weights @ (member * off[:, None]), size)
        absolute = ratio(weights @ (member * np.abs(off)[:, None]), size)
        out["error_gap", attribute] = np.array([gap(line) for line in error])
        out["mae_gap", attribute] = np.array([gap(line) for line in absolute])
        out["error_gap_signed", attribute] = np.array([signed_gap(line) for line in error])
    return out
