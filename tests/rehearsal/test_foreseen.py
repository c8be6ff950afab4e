"""Foreseen: forecasts as an objective within limits, and what they tell a regression."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from fedwise.rehearsal.drawing import random_federations
from fedwise.rehearsal.foreseen import Foreseen
from fedwise.rehearsal.goal import Goal
from fedwise.rehearsal.makeup import Clients
from fedwise.rehearsal.surrogate import Observation, Surrogate
from fedwise.search.constraints import Limits

COUNT = 20
NONE = np.zeros(0, np.int64)
FREE = Limits(NONE, np.arange(COUNT), np.zeros((0, COUNT)), np.zeros(0), np.full(COUNT, -1), NONE)
ROWS = np.random.default_rng(5).choice([-1.0, 1.0], size=(COUNT, 3))


class Squares:
    """Forecasts that no client has by itself: squares of sums."""

    rows = ROWS

    def values(self, sums: np.ndarray, names: Sequence[str] | None = None) -> np.ndarray:
        assert names is not None
        return np.stack(
            [{"auc": sums[:, 0] ** 2, "spd": np.abs(sums[:, 1]), "eod": sums[:, 2]}[n] for n in names], axis=1
        )


RANDOM = random_federations({4: FREE}, 60, seed=1, salt=0)


def test_random_federations_are_distinct_and_of_the_sizes_asked() -> None:
    assert len(set(RANDOM)) == 60
    assert {len(members) for members in RANDOM} == {4}
    assert random_federations({4: FREE}, 60, seed=1, salt=0) == RANDOM
    assert random_federations({4: FREE}, 60, seed=1, salt=1) != RANDOM
    both = random_federations({3: FREE, 4: FREE}, 40, seed=1, salt=0)
    assert [len(members) for members in both].count(3) == 20
    assert len(random_federations({19: FREE}, 60, seed=1, salt=0)) == 20


def test_a_goal_is_aimed_at_within_random_limits() -> None:
    made = Foreseen(Squares(), ("auc", "spd"))
    aim = made.aim(Goal.of("auc", {"spd": "random", "eod:SEX": 0.1}), RANDOM)
    assert aim is not None
    values = made.of(RANDOM)
    assert aim.bounds == {"spd": pytest.approx(values[:, 1].mean())}  # nobody forecasts the other
    losses = aim.evaluate(np.stack([aim.rows()[list(m)].sum(axis=0) for m in RANDOM]))
    kept = values[:, 1] <= values[:, 1].mean()
    assert losses[kept] == pytest.approx(-values[kept, 0])
    assert np.all(losses[~kept] > -values[~kept, 0])


def test_what_is_maximised_must_be_forecast() -> None:
    assert Foreseen(Squares(), ("spd",)).aim(Goal.of("auc", {"spd": 0.1}), RANDOM) is None


def test_forecasts_tell_a_regression_what_clients_do_not() -> None:
    """A metric that is the forecast and a little of each client: from 50 rehearsals, without and with forecasts."""
    rng = np.random.default_rng(0)
    own = rng.normal(size=COUNT) * 0.3
    made = Foreseen(Squares(), ("auc",))

    def truth(members: Sequence[int]) -> float:
        return float(made.of([tuple(members)])[0, 0] + own[list(members)].sum())

    seen = [Observation(m, i % 2, [truth(m) + 0.1 * rng.normal()]) for i, m in enumerate(RANDOM[:50])]
    fresh = random_federations({4: FREE}, 100, seed=2, salt=0)
    correlations = []
    for given in (None, made):
        found = Surrogate(Clients(np.full(COUNT, 100.0)), seen, Goal.of("auc"), level=(0,), foreseen=given)
        said = found.predicted(np.stack([found.rows()[list(m)].sum(axis=0) for m in fresh]))[:, 0]
        correlations.append(float(np.corrcoef(said, [truth(m) for m in fresh])[0, 1]))
    assert correlations[1] > 0.95
    assert correlations[0] < 0.7


def test_a_forecast_that_is_not_known_says_nothing() -> None:
    class Unknown(Squares):
        def values(self, sums: np.ndarray, names: Sequence[str] | None = None) -> np.ndarray:
            return np.full((len(sums), 1), np.nan)

    seen = [Observation(m, 0, [float(i)]) for i, m in enumerate(RANDOM[:10])]
    known = Clients(np.full(COUNT, 100.0))
    without = Surrogate(known, seen, Goal.of("auc"), level=(0,))
    found = Surrogate(known, seen, Goal.of("auc"), level=(0,), foreseen=Foreseen(Unknown(), ("auc",)))
    for members in RANDOM[:12]:
        assert found.estimated(members)["auc"] == pytest.approx(without.estimated(members)["auc"])
