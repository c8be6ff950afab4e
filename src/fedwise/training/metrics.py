"""Metrics: how good and how even-handed the predictions are.

`evaluate` is the fast path of every round: decisions at ½, log loss and AUC. With `extended`, as after the
last round, it adds the Brier score, the calibration error, and every metric of decisions at the rate-matched
threshold (``@rate``: as many are decided yes as there are positives, so that models are compared at the same
positive rate) and, where a threshold from training rows is given, at that one (``@best``). `final` computes
the group rates at ½ through fairlearn, and adds bootstrap intervals. `measure_scores` and `measure_decisions`
are the same numbers for scores and decisions from anywhere.

The names are those of `fedwise.objective.metric`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import FedwiseError
from ..objective.metric import DECISIONS, GAPS, SIGNED, Metric
from .class_metrics import evaluate_classes, resample_classes
from .confusion import by_fairlearn, confusion, fairness, overall
from .encoding import Rows
from .local import log_losses
from .model import Vector
from .number_metrics import evaluate_numbers, resample_numbers
from .ranking import Ranking, decide, probability
from .resampling import resample
from .task import BINARY, Task
from .values import Value, bounded

__all__ = [
    "EXTENDED", "FAIRNESS", "LARGER_IS_BETTER", "PLAIN", "Value", "best_threshold", "by_fairlearn", "confusion",
    "evaluate", "fairness", "final", "measure_decisions", "measure_scores",
]  # fmt: skip

Floats = npt.NDArray[np.float64]

#: Metrics of all rows together, in the order they are reported.
PLAIN = ("loss", "accuracy", "balanced_accuracy", "precision", "recall", "f1", "auc")
#: What an extended evaluation adds at ½.
EXTENDED = ("brier", "calibration_error", "positive_rate")
#: Metrics of each sensitive attribute.
FAIRNESS = (*GAPS, *SIGNED)
#: Metrics where a larger value is better.
LARGER_IS_BETTER = frozenset(PLAIN) - {"loss"}


def evaluate(
    logits: Vector,
    rows: Rows,
    attributes: Sequence[str],
    *,
    extended: bool = False,
    best: float | None = None,
    task: Task = BINARY,
) -> list[Value]:
    """All metrics of predictions at the threshold ½, and those of `extended`.

    Parameters
    ----------
    logits
        Shape (rows,).
    rows
        The rows predicted, with targets and groups.
    attributes
        Names of the sensitive attributes, in the order of ``rows.groups``.
    extended
        Also the Brier score, the calibration error and the rate-matched metrics; the rate is the label rate
        of `rows`.
    best
        Also the metrics at this log-odds, as found by `best_threshold`; NaN counts as none.
    task
        Of more than two classes the metrics are those of `class_metrics`, of a number those of `number_metrics`.
    """
    if task.kind == "classes":
        return evaluate_classes(logits, rows, attributes, task, extended=extended)
    if task.kind == "number":
        return evaluate_numbers(logits, rows, attributes, task)
    predicted = logits > 0
    found = overall(confusion(rows.y, predicted, np.zeros(len(rows), dtype=np.int64))[0])
    found["loss"] = float(log_losses(logits, rows.y).mean()) if len(rows) else math.nan
    ranking = Ranking.of(logits, rows.y > 0.5)
    found["auc"] = ranking.auc()
    out = [Value(name, "", found[name]) for name in PLAIN]
    for i, attribute in enumerate(attributes):
        gaps = fairness(confusion(rows.y, predicted, rows.groups[i]))
        out += [Value(name, attribute, gaps[name]) for name in FAIRNESS]
    if not extended:
        return out
    found |= _of_probabilities(logits, rows.y, ranking)
    out += [Value(name, "", found[name]) for name in EXTENDED]
    groups = dict(zip(attributes, rows.groups, strict=True))
    for threshold, decided in _decisions(logits, ranking, best):
        out += _decided(rows.y, decided, groups, threshold)
    return out


def best_threshold(logits: Vector, y: npt.NDArray[Any]) -> float:
    """The log-odds with the largest balanced accuracy on rows, as `Ranking.best`; NaN for one class only.

    Computed on training rows, it is a figure of private data: it is for evaluations in one process, and no
    node of a federation sends it.
    """
    return Ranking.of(logits, y > 0.5).best()


def measure_scores(
    scores: npt.NDArray[Any],
    labels: npt.NDArray[Any],
    groups: Mapping[str, npt.NDArray[Any]],
    *,
    best: float | None = None,
    rate: float | None = None,
) -> dict[str, float]:
    """Every metric of scores, by name (``auc``, ``f1@rate``, ``eod:SEX@rate``).

    Parameters
    ----------
    scores
        Shape (rows,): log-odds of the target 1, so that 0 is probability ½.
    labels
        Shape (rows,): 0 or 1.
    groups
        Codes from 0 by sensitive attribute, shape (rows,) each.
    best
        A threshold from other rows, in log-odds, for ``@best``.
    rate
        Share of rows decided yes at ``@rate``; default the label rate.
    """
    scores, labels = np.asarray(scores), np.asarray(labels)
    _check(labels, groups, scores=scores)
    if rate is not None and not 0 <= rate <= 1:
        raise FedwiseError(f"rate must lie between 0 and 1, got {rate}; it is a share of rows")
    ranking = Ranking.of(scores, labels > 0.5)
    found = {"loss": float(log_losses(scores, labels).mean()) if len(labels) else math.nan}
    found["auc"] = ranking.auc()
    found |= _of_probabilities(scores, labels, ranking)
    values = _decided(labels, scores > 0, groups, "")
    for threshold, decided in _decisions(scores, ranking, best, rate):
        values += _decided(labels, decided, groups, threshold)
    return found | _by_name(values)


def measure_decisions(
    decisions: npt.NDArray[Any], labels: npt.NDArray[Any], groups: Mapping[str, npt.NDArray[Any]]
) -> dict[str, float]:
    """Every metric of decisions, by name (``accuracy``, ``eod:SEX``): for predictions after post-processing.

    Parameters
    ----------
    decisions
        Shape (rows,): 0 or 1, or the chance of a yes where decisions are drawn at random; the rates are then
        expected ones.
    labels, groups
        As in `measure_scores`.
    """
    decisions, labels = np.asarray(decisions), np.asarray(labels)
    _check(labels, groups, decisions=decisions)
    if len(decisions) and not (decisions.min() >= 0 and decisions.max() <= 1):
        raise FedwiseError("decisions must lie between 0 and 1; pass scores to measure_scores")
    return _by_name(_decided(labels, decisions, groups, ""))


def _check(
    labels: npt.NDArray[Any], groups: Mapping[str, npt.NDArray[Any]], **others: npt.NDArray[Any]
) -> None:
    for name, values in {**others, **groups}.items():
        if np.shape(values) != labels.shape or labels.ndim != 1:
            raise FedwiseError(
                f"{name} must have one value for each label, got shape {np.shape(values)} for {labels.shape}"
            )


def _by_name(values: list[Value]) -> dict[str, float]:
    out = {}
    for v in values:
        base, _, threshold = v.metric.partition("@")
        out[str(Metric(base, v.attribute, threshold))] = v.value
    return out


def _of_probabilities(logits: npt.NDArray[Any], y: npt.NDArray[Any], ranking: Ranking) -> dict[str, float]:
    if not len(y):
        return {"brier": math.nan, "calibration_error": math.nan}
    return {
        "brier": float(((probability(logits) - y) ** 2).mean()),
        "calibration_error": ranking.calibration_error(),
    }


def _decisions(
    logits: npt.NDArray[Any], ranking: Ranking, best: float | None, rate: float | None = None
) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Decisions at each threshold other than ½, with its name."""
    yield "rate", decide(logits, *ranking.matched(rate))
    if best is not None and not math.isnan(best):
        yield "best", decide(logits, best)


def _decided(
    y: npt.NDArray[Any], decided: npt.NDArray[Any], groups: Mapping[str, npt.NDArray[Any]], threshold: str
) -> list[Value]:
    """Every metric of decisions."""
    suffix = f"@{threshold}" if threshold else ""
    found = overall(confusion(y, decided, np.zeros(len(y), dtype=np.int64))[0])
    out = [Value(name + suffix, "", found[name]) for name in DECISIONS]
    for attribute, group in groups.items():
        gaps = fairness(confusion(y, decided, np.asarray(group)))
        out += [Value(name + suffix, attribute, gaps[name]) for name in FAIRNESS]
    return out


def final(
    logits: Vector,
    rows: Rows,
    attributes: Sequence[str],
    *,
    replicates: int = 200,
    seed: int = 0,
    best: float | None = None,
    task: Task = BINARY,
) -> list[Value]:
    """All metrics, group rates at ½ through fairlearn, with 95% bootstrap intervals over the rows.

    The threshold of ``@rate`` is matched again in each sample; that of ``@best`` comes from other rows and
    stays. The calibration error has no interval: resampling makes it larger, so its quantiles bound nothing.

    Parameters
    ----------
    replicates
        Bootstrap samples of the rows; 0 for no intervals.
    seed
        Seed of the bootstrap.
    best, task
        As in `evaluate`.
    """
    values = evaluate(logits, rows, attributes, extended=True, best=best, task=task)
    if task.kind != "binary":
        if replicates < 1 or len(rows) == 0:
            return values
        draw = resample_classes if task.kind == "classes" else resample_numbers
        rng = np.random.default_rng((seed, 0xB007))
        return bounded(values, draw(logits, rows, attributes, task, replicates=replicates, rng=rng))
    for i, attribute in enumerate(attributes):
        gaps = by_fairlearn(rows.y, logits > 0, rows.groups[i])
        values = [
            v._replace(value=gaps[v.metric]) if v.attribute == attribute and v.metric in gaps else v
            for v in values
        ]
    if replicates < 1 or len(rows) == 0:
        return values
    rng = np.random.default_rng((seed, 0xB007))
    return bounded(values, resample(logits, rows, attributes, replicates=replicates, rng=rng, best=best))
