"""What every sampler promises. A new sampler inherits `SamplerConformance` and sets `make`."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fedwise.errors import FedwiseError
from fedwise.training.samplers import Sampler

CLIENTS = tuple("ABCDEFG")
SIZES = {client: 100.0 * (i + 1) for i, client in enumerate(CLIENTS)}


class SamplerConformance:
    """Inherit, and give `kind`; override `bounds` where the number of participants is not fixed."""

    kind: type[Sampler]

    def make(self, clients=CLIENTS, **options) -> Sampler:
        return self.kind(clients, sizes={client: SIZES.get(client, 1.0) for client in clients}, **options)

    def bounds(self, sampler: Sampler, round: int) -> tuple[int, int]:
        """Smallest and largest number of participants allowed in a round."""
        return sampler.count, sampler.count

    def play(
        self, sampler: Sampler, rounds: int, *, seed: int = 0, silent=(), start: int = 1
    ) -> list[tuple[str, ...]]:
        """Rounds as the simulation plays them; clients in `silent` never answer anything."""
        out = []
        for number in range(start, start + rounds):
            rng = np.random.default_rng((seed, number))
            asked = sampler.candidates(number, rng)
            if asked:
                sampler.observe({c: self.loss(c, number) for c in asked if c not in silent})
            chosen = sampler.choose(number, rng)
            out.append(chosen)
            answered = [client for client in chosen if client not in silent]
            updates = {c: np.random.default_rng((ord(c[0]) % 3, 5)).normal(size=8) for c in answered}
            sampler.observe({c: self.loss(c, number) for c in answered}, updates)
        return out

    def loss(self, client: str, round: int) -> float:
        return 0.1 * (ord(client[0]) % 7) + 1.0 / round

    def test_right_number_no_duplicates_known_clients(self) -> None:
        sampler = self.make()
        for number, chosen in enumerate(self.play(sampler, 12), start=1):
            low, high = self.bounds(sampler, number)
            assert low <= len(chosen) <= high
            assert len(set(chosen)) == len(chosen)
            assert set(chosen) <= set(CLIENTS)

    def test_seeded_and_deterministic(self) -> None:
        assert self.play(self.make(), 8) == self.play(self.make(), 8)

    def test_survives_a_client_that_never_answers(self) -> None:
        sampler = self.make()
        played = self.play(sampler, 20, silent=("C",))
        for number, chosen in enumerate(played, start=1):
            low, high = self.bounds(sampler, number)
            assert low <= len(chosen) <= high
        # The others are still trained.
        assert set().union(*played) - {"C"}

    def test_survives_silence_of_all(self) -> None:
        sampler = self.make()
        assert all(self.play(sampler, 5, silent=CLIENTS))

    def test_a_lone_client_always_takes_part(self) -> None:
        assert self.play(self.make(("A",)), 4) == [("A",)] * 4

    def test_state_goes_through_a_file(self) -> None:
        whole = self.play(self.make(), 8)
        first = self.make()
        begun = self.play(first, 4)
        state = first.state()
        plain = json.loads(json.dumps({k: v for k, v in state.items() if not isinstance(v, np.ndarray)}))
        second = self.make()
        second.restore({**plain, **{k: v for k, v in state.items() if isinstance(v, np.ndarray)}})
        assert begun + self.play(second, 4, start=5) == whole

    def test_nonsense_is_refused(self) -> None:
        with pytest.raises(FedwiseError, match="at least one client, each once"):
            self.make(())
        with pytest.raises(FedwiseError, match="at least one client, each once"):
            self.make(("A", "A"))
