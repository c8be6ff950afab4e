"""Uniform: a random share of the federation, as in FedAvg's original description."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from .sampler import Sampler


class Uniform(Sampler):
    """Every client with the same probability, without replacement."""

    name: ClassVar[str] = "uniform"

    def choose(self, round: int, rng: np.random.Generator) -> tuple[str, ...]:
        """Draw `count` clients."""
        return self._named(rng.choice(len(self.clients), size=self.count, replace=False))
