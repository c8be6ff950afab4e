"""Metric: the one grammar of the names of metrics, for training, forecast, search, report and explorer.

    eod             a base name: decisions at probability ½
    eod:SEX         the groups of one sensitive attribute
    eod@rate        at the rate-matched threshold: predicted positives = the label rate of the rows judged
    eod:SEX@best    at the threshold with the best balanced accuracy on the training rows
    eod[3]:SEX      of one class, where the target has more than two; without brackets the mean over classes

A table of metrics has the attribute in a column of its own, and ``eod@rate`` as the metric.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..errors import FedwiseError, nearest

#: Metrics of scores: no threshold enters.
SCORES = ("loss", "auc", "brier", "calibration_error")
#: Metrics of decisions, over all rows.
DECISIONS = ("accuracy", "balanced_accuracy", "precision", "recall", "f1", "positive_rate")
#: Metrics of decisions that compare groups; 0 is best.
GAPS = ("spd", "eod", "mad", "equalised_odds")
#: Gaps with a sign, of two groups: the later level minus the earlier one.
SIGNED = ("spd_signed", "eod_signed", "mad_signed")
#: Metrics of more than two classes, and of a number; no threshold enters.
CLASSES = ("macro_f1", "macro_auc")
NUMBERS = ("mae", "rmse", "r2")
#: Gaps of the mean error and of the mean absolute error of a number, in its own unit.
NUMBER_GAPS = ("error_gap", "mae_gap", "error_gap_signed")
#: Metrics that a class in brackets may follow.
BY_CLASS = ("spd", "eod", "recall", "f1")
#: Thresholds other than ½.
THRESHOLDS = ("rate", "best")

#: Every base name.
BASES = (*SCORES, *DECISIONS, *GAPS, *SIGNED, *CLASSES, *NUMBERS, *NUMBER_GAPS)
_SMALLER = frozenset({"loss", "brier", "calibration_error", "mae", "rmse", *GAPS, *SIGNED, *NUMBER_GAPS})
_BY_GROUP = frozenset({*GAPS, *SIGNED, *NUMBER_GAPS})
_DECIDED = frozenset({*DECISIONS, *GAPS, *SIGNED})
_LABELS = {
    "auc": "AUC", "f1": "F1", "spd": "SPD", "eod": "EOD", "mad": "MAD", "loss": "log loss", "brier": "Brier score",
    "macro_f1": "macro-F1", "macro_auc": "macro AUC", "mae": "mean absolute error", "rmse": "RMSE", "r2": "R²",
    "error_gap": "gap of mean error", "mae_gap": "gap of absolute error",
    "error_gap_signed": "signed gap of mean error",
    "spd_signed": "signed SPD", "eod_signed": "signed EOD", "mad_signed": "signed MAD",
}  # fmt: skip


class Metric(NamedTuple):
    """One metric: what is computed, between the groups of which attribute, at which threshold.

    `attribute` is empty for all rows, or for the first attribute where groups are compared. `threshold` is
    empty for ½, else one of `THRESHOLDS`. `level` names one of several classes.
    """

    base: str
    attribute: str = ""
    threshold: str = ""
    level: str = ""

    def __str__(self) -> str:
        return self._of_class + (f":{self.attribute}" if self.attribute else "") + self._suffix

    @property
    def _of_class(self) -> str:
        return self.base + (f"[{self.level}]" if self.level else "")

    @property
    def _suffix(self) -> str:
        return f"@{self.threshold}" if self.threshold else ""

    @property
    def column(self) -> str:
        """The name in the column ``metric`` of a table, such as ``eod@rate``."""
        return self._of_class + self._suffix

    @property
    def larger_is_better(self) -> bool:
        """Whether a limit is the least that is allowed."""
        return self.base not in _SMALLER

    @property
    def compares_groups(self) -> bool:
        """Whether it belongs to a sensitive attribute."""
        return self.base in _BY_GROUP

    @property
    def bounds(self) -> tuple[float, float]:
        """Least and largest value there can be."""
        if self.base in ("r2", "error_gap_signed"):
            return -math.inf, math.inf if self.base != "r2" else 1.0
        if self.base in ("loss", "mae", "rmse", *NUMBER_GAPS):
            return 0.0, math.inf
        return (-1.0 if self.base in SIGNED else 0.0), 1.0

    @property
    def label(self) -> str:
        """How people write it: ``EOD of SEX, rate-matched``."""
        text = _LABELS.get(self.base, self.base.replace("_", " "))
        text += f" of class {self.level}" if self.level else ""
        text += f" of {self.attribute}" if self.attribute else ""
        return text + {"": "", "rate": ", rate-matched", "best": ", best threshold"}[self.threshold]


def parse(
    text: str,
    *,
    what: str = "metric",
    known: Iterable[str] | None = None,
    attributes: Sequence[str] | None = None,
) -> Metric:
    """The metric of a name such as ``eod:SEX@rate``.

    Parameters
    ----------
    what
        Who asks, for the message.
    known
        The columns (`Metric.column`) that are to be had; default every one there is.
    attributes
        The sensitive attributes of the schema; default: any name is taken.

    Raises
    ------
    FedwiseError
        The name is none, with the nearest that is.
    """
    plain, level = _class_of(text)
    head, at, threshold = plain.partition("@")
    base, colon, attribute = head.partition(":")
    columns = set(known) if known is not None else set(every())
    found = Metric(base, attribute, threshold, level)
    per_class = not level or (base in BY_CLASS and not threshold)
    if found._replace(level="").column not in columns or (at and not threshold) or not per_class:
        raise FedwiseError(
            f"{what} must be a metric such as auc, balanced_accuracy@rate or eod, got '{text}'"
            f"{nearest(found.column, columns)}"
        )
    if colon and not (found.compares_groups and attribute):
        raise FedwiseError(
            f"{what} must name an attribute only for gaps between groups, as in eod:SEX, got '{text}'; "
            f"write {found.column}"
        )
    if attribute and attributes is not None and attribute not in attributes:
        raise FedwiseError(
            f"{what} must name a sensitive attribute, got '{attribute}' in '{text}'"
            f"{nearest(attribute, attributes)}"
        )
    return found


def _class_of(text: str) -> tuple[str, str]:
    """A name without its class in brackets, and the class: labels may hold any sign, brackets too."""
    first, last = text.find("["), text.rfind("]")
    if 0 < first < last - 1:
        return text[:first] + text[last + 1 :], text[first + 1 : last]
    return text, ""


def every(bases: Iterable[str] = BASES, thresholds: Iterable[str] = THRESHOLDS) -> tuple[str, ...]:
    """The names of metrics as a table has them: bases at ½, then those of decisions at other thresholds."""
    bases = tuple(bases)
    decided = [base for base in bases if base in _DECIDED]
    return (*bases, *(f"{base}@{threshold}" for threshold in thresholds for base in decided))
