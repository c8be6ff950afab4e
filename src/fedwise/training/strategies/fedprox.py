"""FedProx (Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith 2020): FedAvg with a pull towards the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import msgspec

from ..local import Instruction, LocalSettings
from .fedavg import FedAvg
from .strategy import ServerState


@dataclass(frozen=True)
class FedProx(FedAvg):
    """Clients minimise f_i(y) + (mu/2)·‖y − x‖²; the aggregation is FedAvg's."""

    name: ClassVar[str] = "fedprox"
    mu: float = 0.01

    def configure(self, settings: LocalSettings, state: ServerState) -> Instruction:
        """Train with the proximal term."""
        return Instruction(msgspec.structs.replace(settings, mu=self.mu))
