"""Trimmed mean (Yin, Chen, Ramchandran, Bartlett 2018, option II): every parameter without its extremes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..local import Update
from ..model import Vector
from .fedavg import FedAvg
from .strategy import ServerState, check_share, stacked


@dataclass(frozen=True)
class TrimmedMean(FedAvg):
    """x_d ← mean of y_id without the ⌊share·n⌋ smallest and as many largest values.

    Parameters
    ----------
    share
        Share of the participants taken off at either end, below ½; 0 is the plain mean.
    """

    name: ClassVar[str] = "trimmed_mean"
    share: float = 0.3

    def __post_init__(self) -> None:
        check_share(self.share)

    def aggregate(
        self, parameters: Vector, updates: Sequence[Update], state: ServerState
    ) -> tuple[Vector, ServerState]:
        """Sort each parameter and average the middle."""
        found = np.sort(stacked(updates), axis=0)
        cut = min(int(self.share * len(found)), (len(found) - 1) // 2)
        return found[cut : len(found) - cut].mean(axis=0).astype(np.float32), state
