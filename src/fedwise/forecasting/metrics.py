"""Metrics of a trained classifier, computed from how often it says yes in each group and class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from ..errors import FedwiseError
from ..objective.metric import Metric, parse

Floats = npt.NDArray[np.float64]

#: Metrics every evaluation gives, in the order of `from_rates`: decisions at ½.
NAMES = ("accuracy", "balanced_accuracy", "f1", "positive_rate", "spd", "eod")
#: Metrics of scores, given where asked for.
SCORES = ("auc", "loss", "brier")
#: Metrics at the rate-matched threshold, given where asked for. The positive rate there is the label rate.
MATCHED = ("accuracy@rate", "balanced_accuracy@rate", "f1@rate", "spd@rate", "eod@rate")
#: Every metric there is a forecast of, for two classes.
ALL = (*NAMES, *SCORES, *MATCHED)
#: Metrics of several classes, and of a number in its own unit.
CLASS_NAMES = ("loss", "accuracy", "balanced_accuracy", "macro_f1", "brier", "spd", "eod", "mad")
NUMBER_NAMES = ("loss", "mae", "rmse", "r2", "error_gap", "mae_gap")
#: Metrics of several classes that a class in brackets may follow.
ONE_CLASS = ("recall", "f1", "spd", "eod")
#: Every metric of any target.
ANY = tuple(dict.fromkeys((*ALL, *CLASS_NAMES, *ONE_CLASS, *NUMBER_NAMES)))
#: Gaps at ½: less is better, and 0 is best.
GAPS = frozenset({"spd", "eod"})


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """Forecast metrics. `spd` and `eod` are absolute; the signed ones are the later level's rate minus the
    earlier one's, as in `fedwise.training`.

    With more than two groups the gap is largest minus smallest, and the signed gap equals it.
    `mse` is the mean squared error of the predicted probability (Brier score), `auc` the area under
    the ROC curve, `loss` the mean log loss; `group_rates` are positive rates in the order of the sensitive
    attribute's levels; `matched` holds the metrics at the rate-matched threshold by name (``eod@rate``).
    """

    accuracy: float
    balanced_accuracy: float
    f1: float
    positive_rate: float
    spd: float
    eod: float
    spd_signed: float
    eod_signed: float
    auc: float
    mse: float
    mean_score: float
    group_rates: tuple[float, ...]
    group_scores: tuple[float, ...]
    loss: float = float("nan")
    matched: dict[str, float] = msgspec.field(default_factory=dict)

    @property
    def brier(self) -> float:
        """Mean squared error of the predicted probability."""
        return self.mse

    def value(self, name: str) -> float:
        """The metric called `name`, without an attribute: it is that of the forecast."""
        column = check_name(name).column
        return float(self.matched[column] if "@" in column else getattr(self, column))


def check_name(name: str, *, what: str = "metric", attributes: Sequence[str] | None = None) -> Metric:
    """The metric of a name; refuses one that is forecast of no target."""
    return parse(name, what=what, known=ANY, attributes=attributes)


def check_weights(maximise: str | Mapping[str, float]) -> dict[str, float]:
    """What to maximise, as weights by metric name: the bare name of a gap or a loss means to make it small."""
    if isinstance(maximise, str):
        return {maximise: 1.0 if check_name(maximise, what="maximise").larger_is_better else -1.0}
    for name, weight in maximise.items():
        check_name(name, what="maximise")
        if not np.isfinite(weight):
            raise FedwiseError(f"weight of {name} must be a finite number, got {weight}")
    if not any(maximise.values()):
        raise FedwiseError("maximise must give at least one metric a weight other than 0")
    return {name: float(weight) for name, weight in maximise.items()}


def gap(rates: Floats) -> Floats:
    """Signed difference of two groups, or range of more: shape (..., groups) to (...)."""
    if rates.shape[-1] == 2:
        return np.asarray(rates[..., 1] - rates[..., 0], dtype=np.float64)
    return np.asarray(rates.max(axis=-1) - rates.min(axis=-1), dtype=np.float64)


def from_rates(rates: Floats, shares: Floats) -> tuple[Floats, Floats, Floats]:
    """Metrics from the rate of positive predictions in each group and class.

    Parameters
    ----------
    rates
        Shape (batch, groups, 2): share of predictions that are positive, by group and true class.
    shares
        Shape (groups, 2): share of the population in each.

    Returns
    -------
    values, spd, eod
        Shape (batch, metrics) in the order of `NAMES`; and the signed gaps, shape (batch,).
    """
    joint = rates * shares
    true, false = joint[:, :, 1].sum(axis=1), joint[:, :, 0].sum(axis=1)
    positive, negative = shares[:, 1].sum(), shares[:, 0].sum()
    predicted = true + false
    with np.errstate(divide="ignore", invalid="ignore"):
        by_group = joint.sum(axis=2) / shares.sum(axis=1)
        recall, fallout = true / positive, false / negative
        f1 = 2 * true / (predicted + positive)
    seen = shares.sum(axis=1) > 0
    seen_positive = shares[:, 1] > 0
    spd = gap(by_group[:, seen]) if seen.sum() > 1 else np.zeros(len(rates))
    eod = gap(rates[:, seen_positive, 1]) if seen_positive.sum() > 1 else np.zeros(len(rates))
    accuracy = true + negative - false
    balanced = (recall + 1 - fallout) / 2
    values = np.stack([accuracy, balanced, f1, predicted, np.abs(spd), np.abs(eod)], axis=1)
    return np.clip(np.nan_to_num(values), 0.0, 1.0), np.nan_to_num(spd), np.nan_to_num(eod)


def matched_yes(scores: Floats, chance: Floats, weights: Floats) -> Floats:
    """Chance of a yes for each weighted record so that the share of yes is that of the positive class.

    Records above the threshold have 1, those below 0, and those that equal it what is left, in equal parts.
    """
    values, at = np.unique(scores, return_inverse=True)
    mass = np.bincount(at, weights, len(values))
    above = np.cumsum(mass[::-1])[::-1] - mass
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.clip((weights @ chance - above) / mass, 0.0, 1.0)
    return np.asarray(np.nan_to_num(share)[at], dtype=np.float64)


def auc(scores: Floats, chance: Floats, weights: Floats) -> float:
    """Area under the ROC curve of weighted records with a chance of the positive class; ties count half."""
    values, at = np.unique(scores, return_inverse=True)
    yes = np.bincount(at, weights * chance, len(values))
    no = np.bincount(at, weights * (1 - chance), len(values))
    if yes.sum() <= 0 or no.sum() <= 0:
        return 0.5
    below = np.cumsum(no) - no / 2
    return float((yes * below).sum() / (yes.sum() * no.sum()))
