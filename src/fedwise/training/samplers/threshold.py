"""Threshold (after Ribero and Vikalo 2020): high losses take part, stale estimates drift to the mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from ...errors import FedwiseError
from .sampler import Floats, Sampler, SamplerState


class Threshold(Sampler):
    """Clients whose estimated loss is above a percentile; everyone in the first round.

    After a round the estimate of a client that answered is its loss; all others take one
    Ornstein–Uhlenbeck step without noise towards the mean of the losses just seen,
    e_i ← e_i + θ·(mean − e_i). Clients nobody has heard of hold that mean. The number of participants
    follows from the percentile, so `fraction` is ignored; where nobody is strictly above it (all
    estimates equal), everyone takes part.
    """

    name: ClassVar[str] = "threshold"

    def __init__(
        self,
        clients: Sequence[str],
        *,
        sizes: Mapping[str, float] | None = None,
        fraction: float = 0.5,
        percentile: float = 50.0,
        theta: float = 0.5,
    ) -> None:
        super().__init__(clients, sizes=sizes, fraction=fraction)
        if not (0 <= percentile < 100 and 0 <= theta <= 1):
            raise FedwiseError(
                f"threshold needs 0 <= percentile < 100 and 0 <= theta <= 1, got {percentile}, {theta}"
            )
        self.percentile, self.theta = percentile, theta
        self._estimates = np.full(len(clients), np.nan)

    @property
    def estimates(self) -> Floats:
        """Estimated loss of every client; NaN before any answer."""
        return self._estimates.copy()

    def choose(self, round: int, rng: np.random.Generator) -> tuple[str, ...]:
        """Everyone above the percentile."""
        if np.isnan(self._estimates).all():
            return self.clients
        above = np.flatnonzero(self._estimates > np.percentile(self._estimates, self.percentile))
        return self._named(above) if len(above) else self.clients

    def observe(self, losses: Mapping[str, float], updates: Mapping[str, Floats] | None = None) -> None:
        """Take the new losses, and let the others drift."""
        heard = [losses[client] for client in self.clients if client in losses]
        if not heard:
            return
        mean = float(np.mean(heard))
        for i, client in enumerate(self.clients):
            if client in losses:
                self._estimates[i] = losses[client]
            elif np.isnan(self._estimates[i]):
                self._estimates[i] = mean
            else:
                self._estimates[i] += self.theta * (mean - self._estimates[i])

    def state(self) -> SamplerState:
        """The estimates; unknown ones as null."""
        return {"estimates": [None if np.isnan(e) else float(e) for e in self._estimates]}

    def restore(self, state: SamplerState) -> None:
        """Go on from `state`."""
        self._estimates = np.array([np.nan if e is None else e for e in state["estimates"]], dtype=np.float64)
