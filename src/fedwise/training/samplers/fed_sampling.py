"""FedSampling (Qi, Wu, Wu, Wang, Huang, Xie 2023) at client level: probability in proportion to data."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from .sampler import Sampler


class FedSampling(Sampler):
    """Draw clients one after the other, each with probability ∝ its size among those left."""

    name: ClassVar[str] = "fed_sampling"

    def choose(self, round: int, rng: np.random.Generator) -> tuple[str, ...]:
        """Draw `count` clients."""
        return self._named(self._draw(rng, self.count, self.sizes))
