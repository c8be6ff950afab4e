"""Metric: the one grammar of the names of metrics, for training, forecast, search, report and explorer.

    eod             a base name: decisions at probability ½
    eod:SEX         the groups of one sensitive attribute
    eod@rate        at the rate-matched threshold: predicted positives = the label rate of the rows judged
    eod:SEX@best    at the threshold with the best balanced accuracy on the training rows

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
#: Thresholds other than ½.
THRESHOLDS = ("rate", "best")

#: Every base name.
BASES = (*SCORES, *DECISIONS, *GAPS, *SIGNED)
_SMALLER = frozenset({"loss", "brier", "calibration_error", *GAPS, *SIGNED})
_BY_GROUP = frozenset({*GAPS, *SIGNED})
_LABELS = {
    "auc": "AUC", "f1": "F1", "spd": "SPD", "eod": "EOD", "mad": "MAD", "loss": "log loss", "brier": "Brier score",
    "spd_signed": "signed SPD", "eod_signed": "signed EOD", "mad_signed": "signed MAD",
}  # fmt: skip


class Metric(NamedTuple):
    """One metric: what is computed, between the groups of which attribute, at which threshold.

    `attribute` is empty for all rows, or for the first attribute where groups are compared. `threshold` is
    empty for ½, else one of `THRESHOLDS`.
    """

    base: str
    attribute: str = ""
    threshold: str = ""

    def __str__(self) -> str:
        return self.base + (f":{self.attribute}" if self.attribute else "") + self._suffix

    @property
    def _suffix(self) -> str:
        return f"@{self.threshold}" if self.threshold else ""

    @property
    def column(self) -> str:
        """The name in the column ``metric`` of a table, such as ``eod@rate``."""
        return self.base + self._suffix

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
        if self.base == "loss":
            return 0.0, math.inf
        return (-1.0 if self.base in SIGNED else 0.0), 1.0

    @property
    def label(self) -> str:
        """How people write it: ``EOD of SEX, rate-matched``."""
        text = _LABELS.get(self.base, self.base.replace("_", " "))
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
    head, at, threshold = text.partition("@")
    base, colon, attribute = head.partition(":")
    columns = set(known) if known is not None else set(every())
    found = Metric(base, attribute, threshold)
    if found.column not in columns or (at and not threshold):
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


def every(bases: Iterable[str] = BASES, thresholds: Iterable[str] = THRESHOLDS) -> tuple[str, ...]:
    """The names of metrics as a table has them: bases at ½, then those of decisions at other thresholds."""
    bases = tuple(bases)
    decided = [base for base in bases if base not in SCORES]
    return (*bases, *(f"{base}@{threshold}" for threshold in thresholds for base in decided))
