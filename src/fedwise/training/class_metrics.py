"""Class metrics: how good and how even-handed predictions of more than two classes are.

A row is decided for the class of the highest score. F1 and AUC are means over classes (each against the rest);
balanced accuracy is the mean of the recalls. Of each class c, groups are compared by the share decided c (``spd``)
and by the recall of c (``eod``); without a class in brackets both are means over the classes, and ``mad`` compares
accuracies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .confusion import gap, ratio
from .encoding import Rows
from .ranking import Ranking, auc
from .task import Task, log_chances
from .values import Value, weighted_draws

Floats = npt.NDArray[np.float64]

#: Metrics of all rows together, in the order they are reported.
PLAIN = ("loss", "accuracy", "balanced_accuracy", "macro_f1", "macro_auc")
#: Metrics of each sensitive attribute: means over classes.
FAIRNESS = ("spd", "eod", "mad")


def evaluate_classes(
    scores: npt.NDArray[Any], rows: Rows, attributes: Sequence[str], task: Task, *, extended: bool = False
) -> list[Value]:
    """All metrics of scores, shape (rows, classes); with `extended` also the Brier score and those of each class."""
    found = _plain(scores, rows, task)
    out = [Value(name, "", found[name]) for name in PLAIN]
    decided = task.decide(scores)
    counts = {a: _counts(rows, decided, rows.groups[i], task) for i, a in enumerate(attributes)}
    for attribute, table in counts.items():
        macro = _gaps(table)[0]
        out += [Value(name, attribute, macro[name]) for name in FAIRNESS]
    if not extended:
        return out
    out.append(Value("brier", "", found["brier"]))
    recalls, f1 = _by_class(_counts(rows, decided, np.zeros(len(rows), np.int64), task)[0])
    for c, label in enumerate(task.labels):
        out += [Value(f"recall[{label}]", "", float(recalls[c])), Value(f"f1[{label}]", "", float(f1[c]))]
    for attribute, table in counts.items():
        by_class = _gaps(table)[1]
        out += [
            Value(f"{name}[{label}]", attribute, float(by_class[name][c]))
            for name in ("spd", "eod")
            for c, label in enumerate(task.labels)
        ]
    return out


def resample_classes(
    scores: npt.NDArray[Any], rows: Rows, attributes: Sequence[str], task: Task, *, replicates: int,
    rng: np.random.Generator,
) -> dict[tuple[str, str], Floats]:  # fmt: skip
    """Bootstrap replicates of every metric but those of single classes, by metric and attribute."""
    decided = task.decide(scores)
    losses, brier = task.losses(scores, rows.y), _brier(scores, rows)
    rankings = [_sorted(scores[:, c], rows.y == c) for c in range(task.outputs)]
    drawn: dict[tuple[str, str], list[Floats]] = {}

    def keep(name: str, attribute: str, values: Floats) -> None:
        drawn.setdefault((name, attribute), []).append(values)

    for weights in weighted_draws(len(rows), replicates, rng):
        keep("loss", "", weights @ losses / len(rows))
        keep("brier", "", weights @ brier / len(rows))
        whole = np.stack([_counts(rows, decided, np.zeros(len(rows), np.int64), task, w)[0] for w in weights])
        for name, values in _of_counts(whole).items():
            keep(name, "", values)
        keep("macro_auc", "", np.nanmean([_weighted_auc(one, weights) for one in rankings], axis=0))
        for i, attribute in enumerate(attributes):
            found = [_gaps(_counts(rows, decided, rows.groups[i], task, w))[0] for w in weights]
            for name in FAIRNESS:
                keep(name, attribute, np.array([one[name] for one in found]))
    return {key: np.concatenate(parts) for key, parts in drawn.items()}


def _plain(scores: npt.NDArray[Any], rows: Rows, task: Task) -> dict[str, float]:
    if not len(rows):
        return dict.fromkeys((*PLAIN, "brier"), float("nan"))
    counts = _counts(rows, task.decide(scores), np.zeros(len(rows), np.int64), task)
    areas = [Ranking.of(scores[:, c], rows.y == c).auc() for c in range(task.outputs)]
    known = [area for area in areas if area == area]
    return {
        "loss": float(task.losses(scores, rows.y).mean()),
        "macro_auc": float(np.mean(known)) if known else float("nan"),
        "brier": float(_brier(scores, rows).mean()),
        **{name: float(values[0]) for name, values in _of_counts(counts).items()},
    }


def _brier(scores: npt.NDArray[Any], rows: Rows) -> Floats:
    """Σ_c (chance of c − [c is true])² of each row: between 0 and 2."""
    off = np.exp(log_chances(scores))
    off[np.arange(len(rows)), rows.y.astype(np.int64)] -= 1.0
    squares: Floats = (off**2).sum(axis=1)
    return squares


def _counts(
    rows: Rows, decided: npt.NDArray[Any], group: npt.NDArray[Any], task: Task, weights: Floats | None = None
) -> Floats:
    """Rows by group, true class and decision, shape (groups, classes, classes)."""
    c = task.outputs
    groups = int(group.max(initial=0)) + 1
    cell = (group.astype(np.int64) * c + rows.y.astype(np.int64)) * c + decided
    return np.bincount(cell, weights, minlength=groups * c * c).astype(np.float64).reshape(groups, c, c)


def _by_class(counts: Floats) -> tuple[Floats, Floats]:
    """Recall and F1 of each class from (…, true, decided); NaN where no row has the class."""
    right = np.diagonal(counts, axis1=-2, axis2=-1)
    true, told = counts.sum(axis=-1), counts.sum(axis=-2)
    return ratio(right, true), ratio(2 * right, true + told)


def _of_counts(counts: Floats) -> dict[str, Floats]:
    """Accuracy, balanced accuracy and macro-F1 of a batch of tables; a class that no row has or gets is left out."""
    recalls, f1 = _by_class(counts)
    right = np.trace(counts, axis1=-2, axis2=-1)
    return {
        "accuracy": ratio(right, counts.sum(axis=(-2, -1))),
        "balanced_accuracy": np.nanmean(recalls, axis=-1),
        "macro_f1": np.nanmean(f1, axis=-1),
    }


def _gaps(counts: Floats) -> tuple[dict[str, float], dict[str, Floats]]:
    """Gaps between groups: means over classes with the gap of accuracies, and those of each class."""
    totals = counts.sum(axis=(1, 2))
    decided = ratio(counts.sum(axis=1), np.repeat(totals[:, None], counts.shape[1], axis=1))
    recalls, _ = _by_class(counts)
    by_class = {
        "spd": np.array([gap(decided[:, c]) for c in range(counts.shape[1])]),
        "eod": np.array([gap(recalls[:, c]) for c in range(counts.shape[1])]),
    }
    macro = {name: _mean(values) for name, values in by_class.items()}
    macro["mad"] = gap(ratio(np.trace(counts, axis1=1, axis2=2), totals))
    return macro, by_class


def _mean(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def _sorted(
    scores: npt.NDArray[Any], true: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Order of the rows by score, the first row of each distinct score, and which are of the class."""
    order = np.argsort(scores, kind="stable")
    ordered = scores[order]
    first = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    return order, first, true[order]


def _weighted_auc(
    ranking: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.bool_]], weights: Floats
) -> Floats:
    """AUC of one class in each replicate; weights have shape (replicates, rows)."""
    order, first, true = ranking
    ordered = weights[:, order]
    up = np.add.reduceat(ordered * true, first, axis=1)
    down = np.add.reduceat(ordered * ~true, first, axis=1)
    return auc(down, up)
