"""Association: information of a table, and changing it at fixed marginals."""

from __future__ import annotations

import numpy as np
import pytest

from fedwise.estimation.association import direction, mix_to, nats, nats_of_noisy, strengthen
from fedwise.estimation.fitting import fit
from fedwise.objective.information import information, ratio

TABLE = np.array([[0.20, 0.05, 0.0], [0.05, 0.30, 0.10], [0.02, 0.08, 0.20]])


def test_nats_are_bits_in_other_units() -> None:
    assert nats(TABLE) == pytest.approx(information(TABLE) * np.log(2))
    assert nats(np.outer([0.3, 0.7], [0.5, 0.5])) == pytest.approx(0.0, abs=1e-12)


def test_direction_is_the_derivative_of_the_path() -> None:
    x, y = TABLE.sum(axis=1)[None], TABLE.sum(axis=0)[None]
    step = 1e-4
    ends = [fit(TABLE * ratio(TABLE) ** t, x, y, rounds=500)[0] for t in (-step, step)]
    slope = (ends[1] - ends[0]) / (2 * step)
    np.testing.assert_allclose(direction(TABLE), slope / np.linalg.norm(slope), atol=1e-3)
    np.testing.assert_allclose(direction(TABLE).sum(axis=0), 0.0, atol=1e-6)
    assert direction(TABLE)[0, 2] == 0.0
    np.testing.assert_array_equal(direction(np.full((2, 3), 1 / 6)), 0.0)


@pytest.mark.parametrize("part", [0.7, 1.0, 1.3])
def test_strengthen_reaches_the_goal_and_keeps_marginals_and_empty_cells(part: float) -> None:
    made = strengthen(TABLE, part * nats(TABLE))
    assert nats(made) == pytest.approx(part * nats(TABLE), rel=5e-3)
    np.testing.assert_allclose(made.sum(axis=1), TABLE.sum(axis=1))
    np.testing.assert_allclose(made.sum(axis=0), TABLE.sum(axis=0), atol=1e-6)
    assert made[0, 2] == 0.0


@pytest.mark.parametrize("part", [-0.1, 0.0, 1e-9, 0.01, 0.3, 0.999, 1.0, 1.7, 3.9, 9.0])
def test_strengthen_takes_the_step_that_halving_finds(part: float) -> None:
    rng = np.random.default_rng(1)
    for table in (
        TABLE,
        rng.dirichlet(np.full(40, 0.5)).reshape(8, 5),
        rng.dirichlet(np.full(4, 9.0)).reshape(2, 2),
    ):
        x, y, goal = table.sum(axis=1)[None], table.sum(axis=0)[None], part * nats(table)
        low, high = -1.0, 1.0
        for _ in range(12):
            middle = 0.5 * (low + high)
            weaker = nats(fit(table * ratio(table) ** middle, x, y)[0]) < goal
            low, high = (middle, high) if weaker else (low, middle)
        np.testing.assert_array_equal(strengthen(table, goal), fit(table * ratio(table) ** low, x, y)[0])


def test_a_mixture_reaches_the_goal() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.dirichlet([5, 5, 5], 6), rng.dirichlet([5, 5, 5], 6)
    tables, share = fit(TABLE, x, y, rounds=500), rng.dirichlet(np.ones(6))
    goal = 1.1 * nats(np.tensordot(share, tables, axes=1))
    made = mix_to(tables, ratio(TABLE), x, y, share=share, goal=goal, give=np.ones(6))
    assert nats(np.tensordot(share, made, axes=1)) == pytest.approx(goal, rel=5e-3)


def test_noisy_information_is_unbiased_where_the_plug_in_is_not() -> None:
    # 4,000 draws: standard error of the mean 0.0012, so 0.01 is eight of them; bias allowed by the cells' bound.
    scale, rng = 0.01, np.random.default_rng(1)
    x, y = TABLE.sum(axis=1), TABLE.sum(axis=0)
    found, plug_in = [], []
    for _ in range(4000):
        noise = rng.normal(0, scale, TABLE.shape)
        seen = TABLE + noise
        found.append(nats_of_noisy(seen, x, y, scale=scale))
        plug_in.append(nats(np.maximum(seen, 0.0) / np.maximum(seen, 0.0).sum()))
    assert abs(np.mean(found) - nats(TABLE)) < 0.01
    assert abs(np.mean(found) - nats(TABLE)) < 0.5 * abs(np.mean(plug_in) - nats(TABLE))
