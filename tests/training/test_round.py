"""Round: the server's part, the same for the simulation and for Flower."""

import math

import numpy as np
import pytest

from fedwise.training.local import LocalSettings, Update
from fedwise.training.round import Round

SIZES = {"A": 100.0, "B": 200.0, "C": 300.0, "D": 400.0}


def _round(strategy="fedavg", sampler="full", seed=0, **options) -> Round:
    return Round.of(strategy, sampler, SIZES, settings=LocalSettings(), seed=seed, sampler_options=options)


def _no_losses(_: tuple[str, ...]) -> dict[str, float]:
    raise AssertionError("nobody wanted losses")


def test_losses_are_asked_only_where_the_sampler_wants_them() -> None:
    assert _round().choose(1, _no_losses) == ("A", "B", "C", "D")
    asked: list[tuple[str, ...]] = []

    def losses(clients: tuple[str, ...]) -> dict[str, float]:
        asked.append(clients)
        return {client: float(ord(client)) for client in clients}

    chosen = _round(sampler="power_of_choice", fraction=0.5, d=4).choose(1, losses)
    assert asked == [("A", "B", "C", "D")]
    assert chosen == ("C", "D")  # the highest losses


def test_clients_that_are_offline_are_neither_asked_nor_chosen() -> None:
    asked: list[str] = []

    def losses(clients: tuple[str, ...]) -> dict[str, float]:
        asked.extend(clients)
        return dict.fromkeys(clients, 1.0)

    chosen = _round(sampler="power_of_choice", fraction=1.0, d=4).choose(1, losses, online={"B", "D"})
    assert asked == ["B", "D"]
    assert set(chosen) <= {"B", "D"}


def test_the_choice_depends_on_seed_and_round_alone() -> None:
    first = [_round(sampler="uniform", fraction=0.5).choose(t, _no_losses) for t in range(1, 20)]
    again = _round(sampler="uniform", fraction=0.5)
    assert [again.choose(t, _no_losses) for t in reversed(range(1, 20))] == first[::-1]
    other = _round(sampler="uniform", fraction=0.5, seed=1)
    assert [other.choose(t, _no_losses) for t in range(1, 20)] != first


def test_the_sampler_learns_from_the_answers() -> None:
    server = _round(sampler="ucb_cs", fraction=1.0)
    start = np.zeros(3, dtype=np.float32)
    state = server.start(start)
    server.choose(1, _no_losses)
    updates = [
        Update("A", start + 1, 100, 2.0, 1),
        Update("B", start + 4, 200, math.nan, 1),  # a private client: its loss stays at home
    ]
    moved, _ = server.combine(start, updates, state)
    np.testing.assert_allclose(moved, (100 * 1 + 200 * 4) / 300, rtol=1e-6)
    assert server.sampler.state()["losses"] == [2.0, 0.0, 0.0, 0.0]
    assert server.sampler.state()["seen"] == [1.0, 0.0, 0.0, 0.0]


def test_options_reach_strategy_and_sampler() -> None:
    server = Round.of(
        "fedprox", "uniform", SIZES, settings=LocalSettings(lr=0.5), strategy_options={"mu": 0.25},
        sampler_options={"fraction": 0.25},
    )  # fmt: skip
    assert server.instruct({}).settings == LocalSettings(lr=0.5, mu=0.25)
    assert len(server.choose(1, _no_losses)) == 1
    with pytest.raises(AttributeError):
        server.seed = 3  # type: ignore[misc]  # a value
