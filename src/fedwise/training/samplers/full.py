"""Full: everyone, every round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from .sampler import Sampler


class Full(Sampler):
    """The whole federation takes part; `fraction` is ignored."""

    name: ClassVar[str] = "full"

    def __init__(
        self, clients: Sequence[str], *, sizes: Mapping[str, float] | None = None, fraction: float = 1.0
    ) -> None:
        super().__init__(clients, sizes=sizes, fraction=1.0)

    def choose(self, round: int, rng: np.random.Generator) -> tuple[str, ...]:
        """All clients."""
        return self.clients
