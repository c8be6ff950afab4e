"""FairFed (Ezzeldin, Yan, He, Ferrara, Avestimehr 2023): clients that disagree on fairness weigh less."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from ...errors import FedwiseError
from ..local import Instruction, LocalSettings, Update
from ..model import Vector
from .strategy import ServerState, mean, shares


@dataclass(frozen=True)
class FairFed:
    """ω̄_k ← ω̄_k − β·(Δ_k − mean Δ) and x ← Σ (ω̄_k / Σ ω̄)·y_k, from ω̄_k = n_k / n.

    Δ_k = |F_k − F| is the distance of a client's fairness gap to the gap over all participants, both of
    the parameters just sent; where F_k is undefined (a group is absent), Δ_k = |accuracy_k − accuracy|.
    A weight that falls below 0 counts as 0. The participants report exact sums: see `GroupSums`.

    Parameters
    ----------
    beta
        Fairness budget; 0 is FedAvg.
    metric
        ``eod`` (difference of true positive rates) or ``spd`` (of positive rates).
    attribute
        Which sensitive attribute, by position among the schema's sensitive columns.
    """

    name: ClassVar[str] = "fairfed"
    beta: float = 1.0
    metric: Literal["eod", "spd"] = "eod"
    attribute: int = 0

    def start(self, parameters: Vector, sizes: Mapping[str, float]) -> ServerState:
        """Each client's share of the rows."""
        total = sum(sizes.values())
        return {f"weight/{client}": np.array([rows / total]) for client, rows in sizes.items()}

    def configure(self, settings: LocalSettings, state: ServerState) -> Instruction:
        """Ask for a report on the parameters sent."""
        return Instruction(settings, attribute=self.attribute, report=True)

    def aggregate(
        self, parameters: Vector, updates: Sequence[Update], state: ServerState
    ) -> tuple[Vector, ServerState]:
        """Mean under the updated fairness weights."""
        fallback = shares(updates)
        counts = align_reports(updates, "FairFed")
        whole = counts.sum(axis=0)
        gap, accuracy = signed_gap(whole, self.metric), _accuracy(whole)
        distance = np.empty(len(updates))
        for i, own in enumerate(counts):
            local = signed_gap(own, self.metric)
            known = math.isfinite(local) and math.isfinite(gap)
            distance[i] = abs(local - gap) if known else abs(_accuracy(own) - accuracy)
        raw = np.array([state[f"weight/{update.client}"][0] for update in updates])
        raw = raw - self.beta * (distance - distance.mean())
        positive = np.maximum(raw, 0.0)
        weights = positive / positive.sum() if positive.sum() > 0 else fallback
        kept = {
            f"weight/{update.client}": np.array([value]) for update, value in zip(updates, raw, strict=True)
        }
        return mean(updates, weights).astype(np.float32), {**state, **kept}


def signed_gap(counts: npt.NDArray[np.int64], metric: Literal["eod", "spd"]) -> float:
    """Signed gap of two groups (last minus first), or largest minus smallest rate of more; NaN if one has no rate."""
    picked = counts[1] if metric == "eod" else counts.sum(axis=0)
    totals = picked.sum(axis=1)
    present = counts.sum(axis=(0, 2)) > 0
    if (totals[present] == 0).any() or present.sum() < 2:
        return math.nan
    rates = picked[present, 1] / totals[present]
    return float(rates[1] - rates[0]) if len(rates) == 2 else float(rates.max() - rates.min())


def align_reports(updates: Sequence[Update], name: str) -> npt.NDArray[np.int64]:
    """Counts of all participants, shape (participants, 2, groups, 2): absent groups are zeros."""
    reports = [update.report for update in updates]
    if any(report is None for report in reports):
        raise FedwiseError(f"{name} needs a report from every participant; ask with Instruction(report=True)")
    groups = max(report.counts.shape[1] for report in reports if report is not None)
    out = np.zeros((len(updates), 2, groups, 2), dtype=np.int64)
    for i, report in enumerate(reports):
        assert report is not None
        out[i, :, : report.counts.shape[1]] = report.counts
    return out


def _accuracy(counts: npt.NDArray[np.int64]) -> float:
    return float((counts[0, :, 0].sum() + counts[1, :, 1].sum()) / counts.sum())
