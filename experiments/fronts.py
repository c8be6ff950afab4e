"""Fronts: which models no other beats in AUC and in the gap between groups at once, and what beats all clients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from comparisons import Evidence
from intervals import Floats, Interval

GAP = "eod@rate"
#: AUC counts as equal when the interval of the difference stays above minus this.
MARGIN = 0.005
#: All clients at the same positive rate, and mended in the three ways that are common.
RIVALS = ("all", "all_reweighed", "all_threshold_optimizer_tpr", "all_threshold_optimizer_eo")
#: Chosen and then post-processed, against all clients and then post-processed.
BOTH = ("pfl_threshold_optimizer_tpr", "all_threshold_optimizer_tpr")


def front(auc: Floats, gap: Floats) -> npt.NDArray[np.bool_]:
    """Points that no other point beats: none has at least the AUC and at most the gap, and one of them better."""
    no_worse = (auc[None] >= auc[:, None]) & (gap[None] <= gap[:, None])
    better = (auc[None] > auc[:, None]) | (gap[None] < gap[:, None])
    beaten: npt.NDArray[np.bool_] = (no_worse & better).any(axis=1)
    return ~beaten


def dominated(auc: float, gap: float, others_auc: Floats, others_gap: Floats) -> float:
    """Share of others that are better in both."""
    return float(np.mean((others_auc > auc) & (others_gap < gap)))


@dataclass(frozen=True)
class Setting:
    """A way of choosing on one task, against one model of all clients."""

    task: str
    kind: str
    rival: str
    eod: Interval
    auc: Interval

    @property
    def smaller_gap(self) -> bool:
        """The EOD is smaller, and the interval excludes zero."""
        return self.eod.high < 0

    @property
    def equal_auc(self) -> bool:
        """The AUC is not lower by more than the margin."""
        return self.auc.low >= -MARGIN

    @property
    def won(self) -> bool:
        """A smaller gap at equal AUC."""
        return self.smaller_gap and self.equal_auc


def setting(evidence: Evidence, task: str, kind: str, rival: str) -> Setting | None:
    """The differences of one setting.

    Thresholds by group change decisions and not scores, so the AUC of the rival is that of the model before; a
    reweighed model and shifted scores have an AUC of their own.
    """
    eod = evidence.minus(task, kind, rival, GAP)
    scores = "all" if rival.startswith("all_threshold") else rival
    auc = evidence.minus(task, kind, scores, "auc")
    return None if eod is None or auc is None else Setting(task, kind, rival, eod, auc)


def settings(evidence: Evidence, kinds: tuple[str, ...], rivals: tuple[str, ...] = RIVALS) -> list[Setting]:
    """Every setting there is evidence for."""
    found = [
        setting(evidence, task, kind, rival) for task in evidence.tasks for kind in kinds for rival in rivals
    ]
    return [one for one in found if one is not None]
