"""FLTrust (Cao, Fang, Liu, Gong 2021): clients count by how far their update points where a trusted one does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...errors import FedwiseError, nearest
from ..local import Update
from ..model import Vector
from .fedavg import FedAvg
from .strategy import ServerState, stacked


@dataclass(frozen=True)
class FLTrust(FedAvg):
    """x ← x + Σ t_i·(‖g₀‖/‖g_i‖)·g_i / Σ t_i with g = y − x and t_i = max(0, cos(g_i, g₀)).

    g₀ is the update of the participant that holds the public root rows; it is not averaged itself. Where nobody
    agrees with it, it is followed alone. Without a root, g₀ is the coordinate median of the updates, which takes a
    majority of honest clients for granted where the original needs none.

    Parameters
    ----------
    root
        Name of the participant with public rows: a client the server runs itself. Empty: the median.
    """

    name: ClassVar[str] = "fltrust"
    root: str = ""

    def aggregate(
        self, parameters: Vector, updates: Sequence[Update], state: ServerState
    ) -> tuple[Vector, ServerState]:
        """Trusted mean of updates of one length."""
        found = stacked(updates) - parameters
        names = sorted(update.client for update in updates)
        if self.root and self.root not in names:
            raise FedwiseError(
                f"root of fltrust must be a participant of every round, got '{self.root}'{nearest(self.root, names)}"
            )
        if self.root:
            at = names.index(self.root)
            trusted, found = found[at], np.delete(found, at, axis=0)
        else:
            trusted = np.median(found, axis=0)
        size = float(np.linalg.norm(trusted))
        lengths = np.linalg.norm(found, axis=1)
        if size == 0:
            return parameters.astype(np.float32), state
        scale = np.divide(size, lengths, out=np.zeros_like(lengths), where=lengths > 0)
        trust = np.maximum(scale * (found @ trusted) / size**2, 0.0)
        change = trusted if trust.sum() == 0 else (trust * scale) @ found / trust.sum()
        return (parameters + change).astype(np.float32), state
