"""UCB-CS (Cho, Gupta, Joshi, Yağan 2020): a bandit that prefers high losses and rarely seen clients."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from ...errors import FedwiseError
from .sampler import Floats, Sampler, SamplerState


class UcbCs(Sampler):
    """score_i(t) = L_i / n_i + c·√(ln t / N_i), highest first; clients never tried come before all others.

    L_i = Σ_s γ^(t−s)·loss_i(s) and n_i = Σ_s γ^(t−s) over the rounds s in which i answered, so L_i / n_i
    is the decayed mean loss; N_i counts how often i was chosen. A client that was chosen and never
    answered is given the mean estimate of the others. Ties go to the earlier client.
    """

    name: ClassVar[str] = "ucb_cs"

    def __init__(
        self,
        clients: Sequence[str],
        *,
        sizes: Mapping[str, float] | None = None,
        fraction: float = 0.5,
        c: float = 1.0,
        decay: float = 0.9,
    ) -> None:
        super().__init__(clients, sizes=sizes, fraction=fraction)
        if not (0 < decay <= 1 and c >= 0):
            raise FedwiseError(f"ucb_cs needs 0 < decay <= 1 and c >= 0, got {decay} and {c}")
        self.c, self.decay = c, decay
        self._losses = np.zeros(len(clients))
        self._seen = np.zeros(len(clients))
        self._chosen = np.zeros(len(clients), dtype=np.int64)

    def scores(self, round: int) -> Floats:
        """Score of every client; infinite where never tried."""
        answered = self._seen > 0
        estimate = np.divide(self._losses, self._seen, out=np.zeros(len(self.clients)), where=answered)
        if answered.any():
            estimate[~answered] = estimate[answered].mean()
        tried = np.maximum(self._chosen, 1)
        scores = estimate + self.c * np.sqrt(math.log(max(round, 1)) / tried)
        return np.where(self._chosen > 0, scores, np.inf)

    def choose(self, round: int, rng: np.random.Generator) -> tuple[str, ...]:
        """The `count` highest scores; among clients never tried, at random."""
        scores = self.scores(round)
        fresh = rng.permutation(np.flatnonzero(np.isinf(scores)))[: self.count]
        known = np.flatnonzero(~np.isinf(scores))
        rest = known[np.argsort(-scores[known], kind="stable")][: self.count - len(fresh)]
        chosen = np.concatenate([fresh, rest]).astype(np.int64)
        self._chosen[chosen] += 1
        return self._named(chosen)

    def observe(self, losses: Mapping[str, float], updates: Mapping[str, Floats] | None = None) -> None:
        """Decay what is known and add the new losses."""
        self._losses *= self.decay
        self._seen *= self.decay
        for i, client in enumerate(self.clients):
            if client in losses:
                self._losses[i] += losses[client]
                self._seen[i] += 1.0

    def state(self) -> SamplerState:
        """Sums and counts."""
        return {"losses": self._losses.tolist(), "seen": self._seen.tolist(), "chosen": self._chosen.tolist()}

    def restore(self, state: SamplerState) -> None:
        """Go on from `state`."""
        self._losses = np.array(state["losses"], dtype=np.float64)
        self._seen = np.array(state["seen"], dtype=np.float64)
        self._chosen = np.array(state["chosen"], dtype=np.int64)
