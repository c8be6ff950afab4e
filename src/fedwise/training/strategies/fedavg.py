"""FedAvg (McMahan, Moore, Ramage, Hampson, Agüera y Arcas 2017): the mean weighted by rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..local import Instruction, LocalSettings, Update
from ..model import Vector
from .strategy import ServerState, mean, shares


@dataclass(frozen=True)
class FedAvg:
    """x ← Σ_i (n_i / n) · y_i."""

    name: ClassVar[str] = "fedavg"

    def start(self, parameters: Vector, sizes: Mapping[str, float]) -> ServerState:
        """Nothing to remember."""
        return {}

    def configure(self, settings: LocalSettings, state: ServerState) -> Instruction:
        """Train as the settings say."""
        return Instruction(settings)

    def aggregate(
        self, parameters: Vector, updates: Sequence[Update], state: ServerState
    ) -> tuple[Vector, ServerState]:
        """Weighted mean of the participants."""
        return mean(updates, shares(updates)).astype(np.float32), state
