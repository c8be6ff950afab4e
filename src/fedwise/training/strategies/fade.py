"""FADE (Bendoukha, Arcolezi, Kaaniche, Boudguiga 2025): weights, or a subset, that balance the updates' gaps.

A model's gap follows from the gaps of the updates it is averaged from, so the server can weigh the updates until those
gaps cancel, or average only a subset in which they do. This is our reading of the idea: the original's constraints and
its encrypted protocol are not here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from ...errors import FedwiseError
from ..local import Instruction, LocalSettings, Update
from ..model import Vector
from .fairfed import align_reports, signed_gap
from .fedavg import FedAvg
from .strategy import ServerState, mean, shares

Floats = npt.NDArray[np.float64]

#: Most participants whose subsets are all tried: 2¹² of them.
_ENUMERATED = 12
_BISECTIONS = 80


@dataclass(frozen=True)
class FadeWeights(FedAvg):
    """w = argmin (Σ w_k·F_k)² + penalty·‖w − p‖² over Σ w_k = 1, w_k ≥ 0; then x ← Σ w_k·y_k.

    F_k is the signed gap of client k's trained parameters on its own rows, 0 where a group is absent; p_k its share
    of the rows. The participants report exact sums: see `GroupSums`.

    Parameters
    ----------
    penalty
        How much the weights hold to the shares of rows; without end it is FedAvg.
    metric
        ``eod`` (difference of true positive rates) or ``spd`` (of positive rates).
    attribute
        Which sensitive attribute, by position among the schema's sensitive columns.
    """

    name: ClassVar[str] = "fade_weights"
    penalty: float = 0.1
    metric: Literal["eod", "spd"] = "eod"
    attribute: int = 0

    def __post_init__(self) -> None:
        if not self.penalty > 0:
            raise FedwiseError(f"penalty must be above 0, got {self.penalty}")

    def configure(self, settings: LocalSettings, state: ServerState) -> Instruction:
        """Ask for a report on the trained parameters."""
        return Instruction(settings, attribute=self.attribute, report=True, trained=True)

    def aggregate(
        self, parameters: Vector, updates: Sequence[Update], state: ServerState
    ) -> tuple[Vector, ServerState]:
        """Mean under the balancing weights."""
        weights = balance(_gaps(updates, self.metric), shares(updates), self.penalty)
        return mean(updates, weights).astype(np.float32), state


@dataclass(frozen=True)
class FadeSubset(FedAvg):
    """x ← FedAvg of the subset S with the least |Σ_S p_k·F_k / Σ_S p_k|, of at least ⌈least·n⌉ participants.

    Up to 12 participants all subsets are tried; of more, clients are left out one by one while that helps.

    Parameters
    ----------
    least
        Least share of the participants that is kept; 1 is FedAvg.
    metric, attribute
        As of `FadeWeights`.
    """

    name: ClassVar[str] = "fade_subset"
    least: float = 0.5
    metric: Literal["eod", "spd"] = "eod"
    attribute: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.least <= 1:
            raise FedwiseError(f"least must be a share above 0 and at most 1, got {self.least}")

    def configure(self, settings: LocalSettings, state: ServerState) -> Instruction:
        """Ask for a report on the trained parameters."""
        return Instruction(settings, attribute=self.attribute, report=True, trained=True)

    def aggregate(
        self, parameters: Vector, updates: Sequence[Update], state: ServerState
    ) -> tuple[Vector, ServerState]:
        """FedAvg over the fairest subset."""
        weights = shares(updates)
        kept = fairest(_gaps(updates, self.metric), weights, int(np.ceil(self.least * len(updates))))
        weights = np.where(kept, weights, 0.0)
        return mean(updates, weights / weights.sum()).astype(np.float32), state


def balance(gaps: Floats, near: Floats, penalty: float) -> Floats:
    """Weights on the simplex that minimise (w·gaps)² + penalty·‖w − near‖².

    The minimiser is the projection of near − (s/penalty)·gaps for s = w·gaps, and w·gaps falls as s grows.
    """
    low, high = float(gaps.min()), float(gaps.max())
    for _ in range(_BISECTIONS):
        s = (low + high) / 2
        if onto_simplex(near - s / penalty * gaps) @ gaps > s:
            low = s
        else:
            high = s
    return onto_simplex(near - (low + high) / 2 / penalty * gaps)


def onto_simplex(vector: Floats) -> Floats:
    """Nearest vector of weights that are not negative and sum to 1."""
    ordered = np.sort(vector)[::-1]
    level = (np.cumsum(ordered) - 1.0) / np.arange(1, len(vector) + 1)
    last = np.flatnonzero(ordered > level)[-1]
    return np.asarray(np.maximum(vector - level[last], 0.0), dtype=np.float64)


def fairest(gaps: Floats, weights: Floats, least: int) -> npt.NDArray[np.bool_]:
    """Which of the updates to keep, at least `least` of them, so that the weighted gap is smallest."""
    n = len(gaps)

    def left(kept: npt.NDArray[np.bool_]) -> float:
        return abs(float(weights[kept] @ gaps[kept] / weights[kept].sum()))

    best = np.ones(n, dtype=np.bool_)
    if n <= _ENUMERATED:
        for size in range(n, least - 1, -1):
            for members in combinations(range(n), size):
                kept = np.isin(np.arange(n), members)
                if left(kept) < left(best):
                    best = kept
        return best
    while best.sum() > least:
        tried = []
        for out in np.flatnonzero(best).tolist():
            kept = best.copy()
            kept[out] = False
            tried.append((left(kept), out))
        smallest, out = min(tried)
        if smallest >= left(best):
            break
        best[out] = False
    return best


def _gaps(updates: Sequence[Update], metric: Literal["eod", "spd"]) -> Floats:
    found = np.array([signed_gap(counts, metric) for counts in align_reports(updates, "FADE")])
    return np.asarray(np.nan_to_num(found), dtype=np.float64)
