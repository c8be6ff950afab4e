"""Power-of-Choice (Cho, Wang, Joshi 2020): of d candidates, those with the highest loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from ...errors import FedwiseError
from .sampler import Floats, Sampler, SamplerState


class PowerOfChoice(Sampler):
    """Draw d candidates with probability ∝ size, ask their losses, keep the `count` largest (π_pow-d).

    Where nobody asks the candidates (no `candidates` call in this round), the losses last heard decide and
    clients never heard of count as infinite: the paper's π_rpow-d. A candidate that does not answer is
    taken only when the others do not suffice. Default d: halfway between `count` and everyone.
    """

    name: ClassVar[str] = "power_of_choice"

    def __init__(
        self,
        clients: Sequence[str],
        *,
        sizes: Mapping[str, float] | None = None,
        fraction: float = 0.5,
        d: int | None = None,
    ) -> None:
        super().__init__(clients, sizes=sizes, fraction=fraction)
        self.d = (self.count + len(clients) + 1) // 2 if d is None else d
        if not self.count <= self.d <= len(clients):
            raise FedwiseError(f"d must be between {self.count} and {len(clients)}, got {d}")
        self._drawn: tuple[str, ...] = ()
        self._answers: dict[str, float] = {}
        self._last: dict[str, float] = {}

    def candidates(self, round: int, rng: np.random.Generator) -> tuple[str, ...]:
        """Draw d clients and forget older answers."""
        self._drawn = self._named(self._draw(rng, self.d, self.sizes))
        self._answers = {}
        return self._drawn

    def choose(self, round: int, rng: np.random.Generator) -> tuple[str, ...]:
        """The candidates with the highest losses; ties go to the earlier client."""
        if self._drawn:
            drawn, known, absent = self._drawn, self._answers, -np.inf
        else:
            drawn, known, absent = self._named(self._draw(rng, self.d, self.sizes)), self._last, np.inf
        self._drawn = ()
        ranked = sorted(drawn, key=lambda client: -known.get(client, absent))
        chosen = set(ranked[: self.count])
        return tuple(client for client in self.clients if client in chosen)

    def observe(self, losses: Mapping[str, float], updates: Mapping[str, Floats] | None = None) -> None:
        """Remember the losses."""
        known = {client: float(loss) for client, loss in losses.items() if client in self.clients}
        self._answers.update(known)
        self._last.update(known)

    def state(self) -> SamplerState:
        """Losses last heard."""
        return {"last": dict(self._last)}

    def restore(self, state: SamplerState) -> None:
        """Go on from `state`."""
        self._last = {str(client): float(loss) for client, loss in state["last"].items()}
        self._drawn, self._answers = (), {}
