"""Confusion: metrics of decisions, from counts of rows by group, target and decision.

Every fairness metric comes from rates by group: SPD compares positive rates, EOD true positive rates, MAD
accuracies, and equalised odds is the larger of the gaps in true and false positive rates. The absolute
value is the largest minus the smallest rate over the groups present; the signed value (two groups only)
is the rate of the later level of the schema minus that of the earlier one. A rate that no row defines is
left out.

A decision is 0 or 1, or the chance of a yes where it is drawn at random; counts are then expected counts.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import MissingExtra

Floats = npt.NDArray[np.float64]


def confusion(y: npt.NDArray[Any], decided: npt.NDArray[Any], group: npt.NDArray[Any]) -> Floats:
    """Rows by group, target and decision, shape (groups, 2, 2). `decided` is boolean, or the chance of a yes."""
    codes = group.astype(np.int64)
    groups = int(codes.max(initial=0)) + 1
    if decided.dtype == np.bool_:
        cell = (codes * 2 + (y > 0.5)) * 2 + decided
        return np.bincount(cell, minlength=4 * groups).astype(np.float64).reshape(groups, 2, 2)
    cell = codes * 2 + (y > 0.5)
    rows = np.bincount(cell, minlength=2 * groups)
    yes = np.bincount(cell, weights=decided, minlength=2 * groups)
    return np.stack([rows - yes, yes], axis=-1).reshape(groups, 2, 2)


def overall(counts: Floats) -> dict[str, float]:
    """Metrics of counts by target and decision, shape (2, 2)."""
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
        "positive_rate": (tp + fp) / total if total else math.nan,
    }


def fairness(counts: Floats) -> dict[str, float]:
    """The fairness metrics of counts by group, target and decision, shape (groups, 2, 2)."""
    return _gaps(
        ratio(counts[:, :, 1].sum(axis=1), counts.sum(axis=(1, 2))),
        ratio(counts[:, 1, 1], counts[:, 1].sum(axis=1)),
        ratio(counts[:, 0, 1], counts[:, 0].sum(axis=1)),
        ratio(counts[:, 0, 0] + counts[:, 1, 1], counts.sum(axis=(1, 2))),
    )


def ratio(part: Floats, whole: Floats) -> Floats:
    """part / whole, NaN where the whole is 0."""
    out: Floats = np.divide(part, whole, out=np.full(np.shape(whole), np.nan), where=np.asarray(whole) > 0)
    return out


def _gaps(positive: Floats, true_positive: Floats, false_positive: Floats, right: Floats) -> dict[str, float]:
    odds = [gap for gap in (gap(true_positive), gap(false_positive)) if not math.isnan(gap)]
    return {
        "spd": gap(positive),
        "eod": gap(true_positive),
        "mad": gap(right),
        "equalised_odds": max(odds) if odds else math.nan,
        "spd_signed": signed_gap(positive),
        "eod_signed": signed_gap(true_positive),
        "mad_signed": signed_gap(right),
    }


def gap(rates: Floats) -> float:
    """Largest minus smallest of the rates that are known; NaN for fewer than two."""
    known = rates[~np.isnan(rates)]
    return float(known.max() - known.min()) if len(known) > 1 else math.nan


def signed_gap(rates: Floats) -> float:
    """The later of two groups' rates minus the earlier one; NaN for any other number of groups."""
    known = rates[~np.isnan(rates)]
    return float(known[1] - known[0]) if len(known) == 2 else math.nan


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
