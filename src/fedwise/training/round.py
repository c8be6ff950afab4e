"""Round: what the server does in every round. The sampler chooses, the strategy instructs and combines.

The in-process simulation and the Flower strategy both drive their training through this class, so the same
seed chooses the same participants in both. How messages travel is the caller's part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .local import Instruction, LocalSettings, Update
from .model import Vector
from .samplers import Sampler, make_sampler
from .strategies import ServerState, Strategy, make_strategy

#: Marks the stream of the sampler, apart from every other use of the run's seed.
_SAMPLER_STREAM = 0x5A3B


@dataclass(frozen=True, eq=False)
class Round:
    """The server's part of a round.

    Parameters
    ----------
    strategy, sampler
        How updates are combined, and who takes part. The sampler remembers what it observed.
    sizes
        Training rows of each client of the federation, exact or as noisy tables tell them.
    settings
        How clients train, before the strategy adds its own wishes.
    seed
        Of the sampler's choices.
    """

    strategy: Strategy
    sampler: Sampler
    sizes: Mapping[str, float]
    settings: LocalSettings
    seed: int = 0

    @classmethod
    def of(
        cls,
        strategy: str | Strategy,
        sampler: str | Sampler,
        sizes: Mapping[str, float],
        *,
        settings: LocalSettings,
        seed: int = 0,
        strategy_options: Mapping[str, Any] | None = None,
        sampler_options: Mapping[str, Any] | None = None,
    ) -> Round:
        """Strategy and sampler by name with their options, or as objects."""
        if isinstance(strategy, str):
            strategy = make_strategy(strategy, **(strategy_options or {}))
        if isinstance(sampler, str):
            sampler = make_sampler(sampler, list(sizes), sizes=sizes, **(sampler_options or {}))
        return cls(strategy, sampler, dict(sizes), settings, seed)

    def start(self, parameters: Vector) -> ServerState:
        """What the strategy remembers before the first round."""
        return self.strategy.start(parameters, self.sizes)

    def choose(
        self,
        number: int,
        losses: Callable[[tuple[str, ...]], Mapping[str, float]],
        *,
        online: Collection[str] | None = None,
    ) -> tuple[str, ...]:
        """The participants of round `number` (counted from 1).

        Parameters
        ----------
        losses
            Asks clients for their loss at the current parameters; called only where the sampler wants to
            know. Clients that do not answer are left out of what it returns.
        online
            Clients that can be reached; default all.
        """
        rng = np.random.default_rng((self.seed, number, _SAMPLER_STREAM))
        asked = _among(self.sampler.candidates(number, rng), online)
        if asked:
            self.sampler.observe(losses(asked))
        return _among(self.sampler.choose(number, rng), online)

    def instruct(self, state: ServerState) -> Instruction:
        """What is asked of the participants."""
        return self.strategy.configure(self.settings, state)

    def combine(
        self, parameters: Vector, updates: Sequence[Update], state: ServerState
    ) -> tuple[Vector, ServerState]:
        """Next parameters and state from the answers; the sampler learns from them as well."""
        moved, after = self.strategy.aggregate(parameters, updates, state)
        before = parameters.astype(np.float64)
        known = {update.client: update.loss for update in updates if math.isfinite(update.loss)}
        self.sampler.observe(known, {u.client: u.parameters.astype(np.float64) - before for u in updates})
        return moved, after


def _among(clients: tuple[str, ...], online: Collection[str] | None) -> tuple[str, ...]:
    return clients if online is None else tuple(client for client in clients if client in online)
