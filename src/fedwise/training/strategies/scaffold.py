"""SCAFFOLD (Karimireddy, Kale, Mohri, Reddi, Stich, Suresh 2020): control variates against client drift."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import msgspec
import numpy as np

from ..local import Instruction, LocalSettings, Update
from ..model import Vector
from .strategy import ServerState, mean, shares


@dataclass(frozen=True)
class Scaffold:
    """Local steps follow g − c_i + c; then x ← x + lr·(mean y − x) and c ← c + Σ_i p_i·Δc_i.

    Parameters
    ----------
    lr
        The server's rate.
    optimizer, local_lr
        The paper's SGD at 0.01 by default. ``optimizer=None`` keeps the optimiser and rate of the run,
        for comparisons on matched settings.
    weighted
        Weight clients by rows (p_i = n_i / n over *all* clients), as FedAvg does here; otherwise p_i = 1/N
        and plain means, as in the original. Either way c = Σ_i p_i·c_i over all clients.
    """

    name: ClassVar[str] = "scaffold"
    lr: float = 1.0
    optimizer: Literal["sgd", "adam"] | None = "sgd"
    local_lr: float = 0.01
    weighted: bool = True

    def start(self, parameters: Vector, sizes: Mapping[str, float]) -> ServerState:
        """Zero control variate, and each client's share."""
        total = sum(sizes.values())
        state: ServerState = {"control": np.zeros(parameters.shape, dtype=np.float64)}
        for client, rows in sizes.items():
            state[f"share/{client}"] = np.array([rows / total if self.weighted else 1 / len(sizes)])
        return state

    def configure(self, settings: LocalSettings, state: ServerState) -> Instruction:
        """Send the server's control variate along."""
        if self.optimizer is not None:
            settings = msgspec.structs.replace(settings, optimizer=self.optimizer, lr=self.local_lr)
        return Instruction(settings, control=state["control"].astype(np.float32))

    def aggregate(
        self, parameters: Vector, updates: Sequence[Update], state: ServerState
    ) -> tuple[Vector, ServerState]:
        """Move towards the mean of the participants, and the control variate by their changes."""
        weights = shares(updates) if self.weighted else np.full(len(updates), 1 / max(len(updates), 1))
        moved = mean(updates, weights)
        if self.lr != 1.0:
            moved = parameters + self.lr * (moved - parameters)
        control = state["control"].copy()
        for update in sorted(updates, key=lambda update: update.client):
            if update.control_change is not None:
                control += state[f"share/{update.client}"][0] * update.control_change.astype(np.float64)
        return moved.astype(np.float32), {**state, "control": control}
