"""Ranking: rows sorted by score once, and everything that follows from the order.

Rows of equal score cannot be told apart, so nothing here depends on their order: where a threshold or the
edge of a bin falls among them, each of them counts in part.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from .confusion import ratio

Floats = npt.NDArray[np.float64]

#: Bins of equal count behind the calibration error.
CALIBRATION_BINS = 10


@dataclass(frozen=True, eq=False)
class Ranking:
    """Negatives and positives at each distinct score, in increasing order.

    Parameters
    ----------
    scores
        Shape (distinct,): log-odds.
    down, up
        Shape (distinct,): rows of the target 0 and of the target 1.
    """

    scores: Floats
    down: Floats
    up: Floats

    @classmethod
    def of(cls, scores: npt.NDArray[Any], y: npt.NDArray[np.bool_] | Floats) -> Ranking:
        """Sort rows by score; `y` is whether the target is 1, or the chance that it is."""
        order = np.argsort(scores, kind="stable")
        ordered, truth = scores[order], y[order]
        first = (
            np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
            if len(ordered)
            else np.zeros(0, np.int64)
        )
        up = np.add.reduceat(truth, first, dtype=np.float64) if len(first) else np.zeros(0)
        return cls(ordered[first].astype(np.float64), np.diff(np.r_[first, len(ordered)]) - up, up)

    @cached_property
    def rows(self) -> float:
        """How many rows there are."""
        return float(self.down.sum() + self.up.sum())

    @cached_property
    def rate(self) -> float:
        """Share of rows whose target is 1; NaN without rows."""
        return float(self.up.sum()) / self.rows if self.rows else math.nan

    def auc(self) -> float:
        """P(score of a positive > score of a negative) + ½ P(equal)."""
        return float(auc(self.down, self.up))

    def matched(self, rate: float | None = None) -> tuple[float, float]:
        """The threshold at which a share `rate` of the rows is decided yes; default the label rate.

        Returns
        -------
        threshold, share
            Rows above the threshold are decided yes; those that equal it are decided yes with chance
            `share`, so that the expected number of yes is exactly ``rate · rows``.
        """
        if not self.rows:
            return math.inf, 0.0
        # Counts are whole numbers, so the default is exact: no rounding can move a row over the threshold.
        wanted = float(self.up.sum()) if rate is None else rate * self.rows
        at_least = np.cumsum((self.down + self.up)[::-1])[::-1]
        if wanted <= 0:
            return math.inf, 0.0
        # The last distinct score with as many rows at or above it as are wanted.
        at = max(int(np.searchsorted(-at_least, -wanted, side="right")) - 1, 0)
        tied = float(self.down[at] + self.up[at])
        above = float(at_least[at]) - tied
        return float(self.scores[at]), min((wanted - above) / tied, 1.0)

    def best(self) -> float:
        """The threshold with the largest balanced accuracy (rows above it are decided yes); NaN for one class.

        It lies half-way between two neighbouring scores, or is infinite where deciding all alike is best;
        of several with the same balanced accuracy it is the lowest.
        """
        negatives, positives = self.down.sum(), self.up.sum()
        if not negatives or not positives:
            return math.nan
        # Cut after the i-th score: entry 0 decides yes for all.
        specificity = np.r_[0.0, np.cumsum(self.down)] / negatives
        recall = 1 - np.r_[0.0, np.cumsum(self.up)] / positives
        cut = int(np.argmax(np.round(specificity + recall, 12)))
        if cut in (0, len(self.scores)):
            return -math.inf if cut == 0 else math.inf
        low, high = self.scores[cut - 1], self.scores[cut]
        middle = low + (high - low) / 2
        return float(middle if middle < high else low)

    def calibration_error(self, bins: int = CALIBRATION_BINS) -> float:
        """Mean over bins of equal count of |share of positives − mean probability|, by increasing score.

        Where the edge of a bin falls among rows of equal score, or within a row, they are shared between the
        two bins in proportion.
        """
        if not self.rows:
            return math.nan
        count = self.down + self.up
        at = np.r_[0.0, np.cumsum(count)]
        excess = np.r_[0.0, np.cumsum(self.up - count * probability(self.scores))]
        edges = np.interp(np.linspace(0.0, self.rows, bins + 1), at, excess)
        return float(np.abs(np.diff(edges)).sum() / self.rows)


def probability(scores: npt.NDArray[Any]) -> Floats:
    """The logistic function, without overflow."""
    z = np.exp(-np.abs(scores.astype(np.float64)))
    out: Floats = np.where(scores >= 0, 1.0, z) / (1.0 + z)
    return out


def auc(down: Floats, up: Floats) -> Floats:
    """AUC of counts by increasing score, over the last axis."""
    below = np.cumsum(down, axis=-1) - down / 2
    pairs = up.sum(axis=-1) * down.sum(axis=-1)
    return ratio((up * below).sum(axis=-1), pairs)


def decide(scores: npt.NDArray[Any], threshold: float, share: float = 0.0) -> npt.NDArray[Any]:
    """Decisions: yes above the threshold, with chance `share` at it. Boolean where nothing is left to chance."""
    scores = scores.astype(np.float64)  # a threshold half-way between two float32 is none itself
    yes = scores > threshold
    if share <= 0.0:
        return np.asarray(yes)
    return np.asarray(yes + share * (scores == threshold))
