"""Sampler: who takes part in a round, decided while training runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ...errors import FedwiseError

#: What a sampler remembers: numbers, lists, and arrays by client; a checkpoint holds it.
SamplerState = dict[str, Any]
Floats = npt.NDArray[np.float64]


class Sampler:
    """Base of all samplers: the federation, and how many of it take part.

    A round goes: `candidates` (whose loss at the current parameters should be asked first; mostly none),
    `observe` with those losses, `choose`, training, `observe` with the losses of those who answered. A
    client that never answers is simply never observed.

    Parameters
    ----------
    clients
        The federation, in a fixed order.
    sizes
        Training rows of each client (exact, or estimated from a pool). Default: all equal.
    fraction
        Share of the federation in each round, rounded up.
    """

    name: ClassVar[str] = ""

    def __init__(
        self, clients: Sequence[str], *, sizes: Mapping[str, float] | None = None, fraction: float = 0.5
    ) -> None:
        if not clients or len(set(clients)) != len(clients):
            raise FedwiseError("sampler must be given at least one client, each once; check the federation")
        if not 0 < fraction <= 1:
            raise FedwiseError(f"fraction must be above 0 and at most 1, got {fraction}")
        self.clients = tuple(clients)
        given = dict.fromkeys(clients, 1.0) if sizes is None else sizes
        self.sizes = np.array([max(float(given[client]), 0.0) for client in clients])
        self.fraction = fraction
        #: How many take part in a round.
        self.count = max(1, math.ceil(fraction * len(clients) - 1e-9))

    def candidates(self, round: int, rng: np.random.Generator) -> tuple[str, ...]:
        """Clients whose loss must be known before `choose`."""
        return ()

    def choose(self, round: int, rng: np.random.Generator) -> tuple[str, ...]:
        """The participants of a round (counted from 1), in the order of the federation."""
        raise NotImplementedError

    def observe(self, losses: Mapping[str, float], updates: Mapping[str, Floats] | None = None) -> None:
        """Learn the losses, and where useful the parameter changes, of those who answered."""

    def state(self) -> SamplerState:
        """What to remember."""
        return {}

    def restore(self, state: SamplerState) -> None:
        """Go on from `state`."""

    def _named(self, positions: npt.ArrayLike) -> tuple[str, ...]:
        return tuple(self.clients[i] for i in sorted(int(p) for p in np.asarray(positions).ravel()))

    def _draw(self, rng: np.random.Generator, count: int, weights: Floats) -> npt.NDArray[np.int64]:
        """`count` positions without replacement, with probability in proportion to `weights`."""
        positive = np.flatnonzero(weights > 0)
        if len(positive) < count:
            # Clients of size 0 are drawn only when nobody else is left.
            rest = rng.permutation(np.flatnonzero(weights <= 0))[: count - len(positive)]
            return np.concatenate([positive, rest])
        return rng.choice(len(weights), size=count, replace=False, p=weights / weights.sum())
