"""Metrics: how good and how even-handed the predictions are.

Every fairness metric comes from rates by group: SPD compares positive rates, EOD true positive rates, MAD
accuracies, and equalised odds is the larger of the gaps in true and false positive rates. The absolute
value is the largest minus the smallest rate over the groups present; the signed value (two groups only)
is the rate of the later level of the schema minus that of the earlier one. A rate that no row defines is
left out.

`evaluate` is the fast path of every round. `final` computes the group rates through fairlearn, and adds
bootstrap intervals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import MissingExtra
from .encoding import Rows
from .local import log_losses
from .model import Vector

Floats = npt.NDArray[np.float64]

#: Metrics of all rows together, in the order they are reported.
PLAIN = ("loss", "accuracy", "balanced_accuracy", "precision", "recall", "f1", "auc")
#: Metrics of each sensitive attribute.
FAIRNESS = ("spd", "eod", "mad", "equalised_odds", "spd_signed", "eod_signed", "mad_signed")
#: Metrics where a larger value is better.
LARGER_IS_BETTER = frozenset(PLAIN) - {"loss"}


#: Up to this many rows the bootstrap resamples losses and distinct scores as they are.
EXACT_ROWS = 20_000
#: Groups of neighbouring scores for the bootstrap of AUC above that.
SCORE_BINS = 2_048


class Value(NamedTuple):
    """One number of a table of metrics; `low` and `high` bound it at 95% where a bootstrap ran."""

    metric: str
    attribute: str
    value: float
    low: float = math.nan
    high: float = math.nan


def evaluate(logits: Vector, rows: Rows, attributes: Sequence[str]) -> list[Value]:
    """All metrics of predictions at the threshold ½.

    Parameters
    ----------
    logits
        Shape (rows,).
    rows
        The rows predicted, with targets and groups.
    attributes
        Names of the sensitive attributes, in the order of ``rows.groups``.
    """
    predicted = logits > 0
    found = _plain(confusion(rows.y, predicted, np.zeros(len(rows), dtype=np.int64))[0])
    found["loss"] = float(log_losses(logits, rows.y).mean()) if len(rows) else math.nan
    found["auc"] = float(_auc(*_by_score(logits, rows.y > 0.5)))
    out = [Value(name, "", found[name]) for name in PLAIN]
    for i, attribute in enumerate(attributes):
        gaps = fairness(confusion(rows.y, predicted, rows.groups[i]))
        out += [Value(name, attribute, gaps[name]) for name in FAIRNESS]
    return out


def confusion(y: npt.NDArray[Any], predicted: npt.NDArray[np.bool_], group: npt.NDArray[Any]) -> Floats:
    """Rows by group, target and prediction, shape (groups, 2, 2)."""
    codes = group.astype(np.int64)
    groups = int(codes.max(initial=0)) + 1
    cell = (codes * 2 + (y > 0.5)) * 2 + predicted
    return np.bincount(cell, minlength=4 * groups).astype(np.float64).reshape(groups, 2, 2)


def fairness(counts: Floats) -> dict[str, float]:
    """The fairness metrics of counts by group, target and prediction, shape (groups, 2, 2)."""
    return _gaps(
        _ratio(counts[:, :, 1].sum(axis=1), counts.sum(axis=(1, 2))),
        _ratio(counts[:, 1, 1], counts[:, 1].sum(axis=1)),
        _ratio(counts[:, 0, 1], counts[:, 0].sum(axis=1)),
        _ratio(counts[:, 0, 0] + counts[:, 1, 1], counts.sum(axis=(1, 2))),
    )


def _gaps(positive: Floats, true_positive: Floats, false_positive: Floats, right: Floats) -> dict[str, float]:
    odds = [gap for gap in (_gap(true_positive), _gap(false_positive)) if not math.isnan(gap)]
    return {
        "spd": _gap(positive),
        "eod": _gap(true_positive),
        "mad": _gap(right),
        "equalised_odds": max(odds) if odds else math.nan,
        "spd_signed": _signed(positive),
        "eod_signed": _signed(true_positive),
        "mad_signed": _signed(right),
    }


def _gap(rates: Floats) -> float:
    known = rates[~np.isnan(rates)]
    return float(known.max() - known.min()) if len(known) > 1 else math.nan


def _signed(rates: Floats) -> float:
    known = rates[~np.isnan(rates)]
    return float(known[1] - known[0]) if len(known) == 2 else math.nan


def _ratio(part: Floats, whole: Floats) -> Floats:
    out: Floats = np.divide(part, whole, out=np.full(np.shape(whole), np.nan), where=np.asarray(whole) > 0)
    return out


def _plain(counts: Floats) -> dict[str, float]:
    """Metrics of counts by target and prediction, shape (2, 2)."""
    (tn, fp), (fn, tp) = counts.tolist()
    total = tn + fp + fn + tp
    recall = tp / (tp + fn) if tp + fn else math.nan
    special = tn / (tn + fp) if tn + fp else math.nan
    return {
        "accuracy": (tp + tn) / total if total else math.nan,
        "balanced_accuracy": (recall + special) / 2,
        # As scikit-learn: precision and F1 of no positive at all are 0.
        "precision": tp / (tp + fp) if tp + fp else 0.0,
        "recall": recall,
        "f1": 2 * tp / (2 * tp + fp + fn) if tp + fp + fn else 0.0,
    }


def _by_score(logits: Vector, y: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Negatives and positives at each distinct score, in increasing order."""
    order = np.argsort(logits, kind="stable")
    ordered, truth = logits[order], y[order]
    first = (
        np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(ordered) else np.zeros(0, np.int64)
    )
    up = np.add.reduceat(truth, first, dtype=np.float64) if len(first) else np.zeros(0)
    return np.diff(np.r_[first, len(ordered)]) - up, up


def _auc(down: Floats, up: Floats) -> Floats:
    """P(score of a positive > score of a negative) + ½ P(equal), over the last axis of scores."""
    below = np.cumsum(down, axis=-1) - down / 2
    pairs = up.sum(axis=-1) * down.sum(axis=-1)
    return _ratio((up * below).sum(axis=-1), pairs)


def final(
    logits: Vector, rows: Rows, attributes: Sequence[str], *, replicates: int = 200, seed: int = 0
) -> list[Value]:
    """All metrics, group rates through fairlearn, with 95% bootstrap intervals over the rows.

    Parameters
    ----------
    replicates
        Bootstrap samples of the rows; 0 for no intervals.
    seed
        Seed of the bootstrap.
    """
    values = evaluate(logits, rows, attributes)
    for i, attribute in enumerate(attributes):
        gaps = by_fairlearn(rows.y, logits > 0, rows.groups[i])
        values = [v._replace(value=gaps[v.metric]) if v.attribute == attribute else v for v in values]
    if replicates < 1 or len(rows) == 0:
        return values
    draws = _bootstrap(logits, rows, attributes, replicates, np.random.default_rng((seed, 0xB007)))
    out = []
    for v in values:
        drawn = draws[v.metric, v.attribute]
        known = drawn[~np.isnan(drawn)]
        if math.isnan(v.value) or len(known) == 0:
            out.append(v)
        else:
            low, high = np.quantile(known, [0.025, 0.975])
            out.append(v._replace(low=float(low), high=float(high)))
    return out


def _bootstrap(
    logits: Vector, rows: Rows, attributes: Sequence[str], replicates: int, rng: np.random.Generator
) -> dict[tuple[str, str], Floats]:
    """Replicates of every metric under resampling of the rows.

    Resampling rows and counting cells is a multinomial draw of the counts, so each metric of counts is
    drawn exactly without touching the rows. The mean loss is resampled as it is up to `EXACT_ROWS` rows and by
    its normal limit above; AUC likewise by distinct scores, or by `SCORE_BINS` groups of neighbouring ones.
    """
    count, y = len(rows), rows.y > 0.5
    out: dict[tuple[str, str], Floats] = {}

    def draw(counts: Floats) -> Floats:
        flat = rng.multinomial(count, counts.ravel() / count, size=replicates).astype(np.float64)
        return flat.reshape(replicates, *counts.shape)

    whole = confusion(rows.y, logits > 0, np.zeros(count, dtype=np.int64))[0]
    _collect(out, "", [_plain(one) for one in draw(whole)])
    for i, attribute in enumerate(attributes):
        counts = confusion(rows.y, logits > 0, rows.groups[i])
        _collect(out, attribute, [fairness(one) for one in draw(counts)])
    losses = log_losses(logits, rows.y)
    if count <= EXACT_ROWS:
        out["loss", ""] = np.array(
            [losses[rng.integers(count, size=count)].mean() for _ in range(replicates)]
        )
    else:
        out["loss", ""] = rng.normal(losses.mean(), losses.std() / math.sqrt(count), size=replicates)
    down, up = _by_score(logits, y)
    exact = float(_auc(down, up))
    if len(up) > SCORE_BINS and count > EXACT_ROWS:
        edges = np.linspace(0, len(up), SCORE_BINS, endpoint=False).astype(np.int64)
        down, up = np.add.reduceat(down, edges), np.add.reduceat(up, edges)
    pairs = draw(np.stack([down, up]))
    out["auc", ""] = _auc(pairs[:, 0], pairs[:, 1]) + (exact - float(_auc(down, up)))
    return out


def _collect(out: dict[tuple[str, str], Floats], attribute: str, drawn: list[dict[str, float]]) -> None:
    for name in drawn[0]:
        out[name, attribute] = np.array([one[name] for one in drawn])


def by_fairlearn(
    y: npt.NDArray[Any], predicted: npt.NDArray[np.bool_], group: npt.NDArray[Any]
) -> dict[str, float]:
    """The fairness metrics from fairlearn's `MetricFrame`; undefined rates are left out, not 0.

    fairlearn walks over rows in Python, so it is given each kind of row (group, target, prediction) once,
    with the number of such rows as its weight.
    """
    try:
        from fairlearn.metrics import MetricFrame, false_positive_rate, selection_rate, true_positive_rate
        from sklearn.metrics import accuracy_score
    except ImportError:
        raise MissingExtra("training", "train") from None
    counts = confusion(y, predicted, group)
    # Each kind twice, at half the weight: fairlearn mistakes a single row for no table at all.
    kinds = np.repeat(np.argwhere(counts > 0), 2, axis=0)
    weights = np.repeat(counts[counts > 0] / 2, 2)

    def rates(metric: Any, keep: npt.NDArray[np.bool_]) -> Floats:
        if not keep.any():
            return np.zeros(0)
        found = MetricFrame(
            metrics=metric,
            y_true=kinds[keep, 1],
            y_pred=kinds[keep, 2],
            sensitive_features=kinds[keep, 0],
            sample_params={"sample_weight": weights[keep]},
        )
        by_group: Floats = found.by_group.to_numpy(dtype=np.float64)
        return by_group

    everyone = np.ones(len(kinds), dtype=bool)
    # fairlearn answers 0 for the rate of an empty class, so each rate is asked of the rows that define it.
    return _gaps(
        rates(selection_rate, everyone),
        rates(true_positive_rate, kinds[:, 1] == 1),
        rates(false_positive_rate, kinds[:, 1] == 0),
        rates(accuracy_score, everyone),
    )
