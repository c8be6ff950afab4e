"""FedAdam (Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan 2021), algorithm 2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..local import Instruction, LocalSettings, Update
from ..model import Vector
from .strategy import ServerState, mean, shares


@dataclass(frozen=True)
class FedAdam:
    """Δ = mean y − x; m ← β₁m + (1−β₁)Δ; v ← β₂v + (1−β₂)Δ²; x ← x + lr·m / (√v + τ).

    m starts at 0 and v at τ², without bias correction, as in the paper.
    """

    name: ClassVar[str] = "fedadam"
    lr: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3

    def start(self, parameters: Vector, sizes: Mapping[str, float]) -> ServerState:
        """The two moments."""
        return {
            "first": np.zeros(parameters.shape, dtype=np.float64),
            "second": np.full(parameters.shape, self.tau**2, dtype=np.float64),
        }

    def configure(self, settings: LocalSettings, state: ServerState) -> Instruction:
        """Train as the settings say."""
        return Instruction(settings)

    def aggregate(
        self, parameters: Vector, updates: Sequence[Update], state: ServerState
    ) -> tuple[Vector, ServerState]:
        """One Adam step along the mean change."""
        change = mean(updates, shares(updates)) - parameters
        first = self.beta1 * state["first"] + (1 - self.beta1) * change
        second = self.beta2 * state["second"] + (1 - self.beta2) * change**2
        moved = parameters + self.lr * first / (np.sqrt(second) + self.tau)
        return moved.astype(np.float32), {"first": first, "second": second}
