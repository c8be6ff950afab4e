"""Coordinate median (Yin, Chen, Ramchandran, Bartlett 2018, option I): every parameter's middle value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..local import Update
from ..model import Vector
from .fedavg import FedAvg
from .strategy import ServerState, stacked


@dataclass(frozen=True)
class CoordinateMedian(FedAvg):
    """x_d ← median over clients of y_id. Rows do not count: a client could claim any number of them."""

    name: ClassVar[str] = "median"

    def aggregate(
        self, parameters: Vector, updates: Sequence[Update], state: ServerState
    ) -> tuple[Vector, ServerState]:
        """The median of each parameter, the mean of the middle two for an even number."""
        return np.median(stacked(updates), axis=0).astype(np.float32), state
