"""Implied: slopes against finite differences, least squares against a direct solution, and what it gains."""

from __future__ import annotations

import math

import numpy as np
import pytest

import fedwise as fw
from fedwise.data import synthetic
from fedwise.estimation import implied
from fedwise.estimation.consistency import split, variances
from fedwise.estimation.fitting import centre, fit
from fedwise.estimation.implied import contrasts, improved, noise_trust, slope
from fedwise.owner.tables import count
from fedwise.schema.layout import Layout

LAYOUT = Layout(("x", "y", "z"), (3, 4, 2), ((0, 1), (0, 2), (1, 2)))


def pool_tables(seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    whole = rng.dirichlet(np.full(24, 2.0)).reshape(3, 4, 2)
    return [whole.sum(axis=2), whole.sum(axis=1), whole.sum(axis=0)]


@pytest.mark.parametrize("levels", [2, 3, 9])
def test_contrasts_are_an_orthonormal_basis_of_what_sums_to_zero(levels: int) -> None:
    basis = contrasts(levels)
    np.testing.assert_allclose(basis.T @ basis, np.eye(levels - 1), atol=1e-12)
    np.testing.assert_allclose(basis @ basis.T, np.eye(levels) - 1 / levels, atol=1e-12)


def test_slope_is_that_of_proportional_fitting() -> None:
    table = pool_tables()[0]
    by, step = slope(table), 1e-5
    for column in range(by.shape[1]):
        rows, columns = np.zeros(3), np.zeros(4)
        if column < 2:
            rows = contrasts(3)[:, column]
        else:
            columns = contrasts(4)[:, column - 2]
        ends = [
            fit(
                table,
                table.sum(axis=1) + sign * step * rows,
                table.sum(axis=0) + sign * step * columns,
                rounds=500,
            )
            for sign in (1, -1)
        ]
        moved = centre((ends[0] - ends[1]) / (2 * step)).reshape(-1)
        np.testing.assert_allclose(by[:, column], moved, atol=1e-3)


def measured(
    clients: int, *, own: float = 0.0, seed: int = 1, noise: float = 2e-3, deviations: float = 0.03
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """True contrasts, measured deviations of levels, and interactions that follow from them and `own` noise."""
    rng = np.random.default_rng(seed)
    true = deviations * rng.standard_normal((clients, 6))
    at, interactions = implied._places(LAYOUT), []
    for j, table in enumerate(pool_tables()):
        x, y = LAYOUT.pairs[j]
        exact = (
            centre(table).reshape(-1)
            + np.concatenate([true[:, at[x]], true[:, at[y]]], axis=1) @ slope(table).T
        )
        error = centre(rng.standard_normal((clients, *table.shape))).reshape(clients, -1)
        beside = centre(rng.standard_normal((clients, *table.shape))).reshape(clients, -1)
        interactions.append(exact + math.sqrt(noise) * error + own * beside)
    seen = true + math.sqrt(noise) * rng.standard_normal(true.shape)
    levels = np.concatenate([seen[:, at[v]] @ contrasts(a).T for v, a in enumerate(LAYOUT.sizes)], axis=1)
    return true, levels, np.concatenate(interactions, axis=1)


def improve(
    levels: np.ndarray, interactions: np.ndarray, noise: float = 2e-3, trust: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    clients = len(levels)
    moved, left = improved(
        levels[None], np.full((clients, 3), noise), interactions[None], np.ones((1, clients)),
        np.full((clients, 3), noise), [table[None] for table in pool_tables()], [np.ones((1, clients))] * 3,
        LAYOUT, np.array([trust]),
    )  # fmt: skip
    return moved[0], left[0]


def in_levels(true: np.ndarray) -> np.ndarray:
    at = implied._places(LAYOUT)
    return np.concatenate([true[:, at[v]] @ contrasts(a).T for v, a in enumerate(LAYOUT.sizes)], axis=1)


def test_interactions_that_follow_the_pool_lower_the_error_as_stated() -> None:
    true, levels, interactions = measured(4000)
    moved, left = improve(levels, interactions)
    error, before = np.mean((moved - in_levels(true)) ** 2), np.mean((levels - in_levels(true)) ** 2)
    assert error < 0.97 * before
    # 36,000 squared errors, correlated within clients: the mean is known to about 1.5%.
    assert error == pytest.approx(np.mean(left), rel=0.05)


def test_least_squares_against_a_direct_solution(monkeypatch: pytest.MonkeyPatch) -> None:
    true, levels, interactions = measured(400, own=0.05)
    del true
    told: list[np.ndarray] = []
    usual = implied._factor
    monkeypatch.setattr(implied, "_factor", lambda *given: told.append(usual(*given)) or told[-1])  # type: ignore[func-returns-value]
    moved, left = improve(levels, interactions)
    at, noise = implied._places(LAYOUT), 2e-3
    first = np.concatenate(
        [levels[:, LAYOUT.marginal(v)] @ contrasts(a) for v, a in enumerate(LAYOUT.sizes)], axis=1
    )
    rows, spreads = [], []
    for j, table in enumerate(pool_tables()):
        x, y = LAYOUT.pairs[j]
        here = np.zeros((table.size, 6))
        here[:, np.r_[at[x], at[y]]] = slope(table)
        beyond = interactions[:, LAYOUT.slice(j)] - centre(table).reshape(-1)
        free = (table.shape[0] - 1) * (table.shape[1] - 1)
        expected = noise * (free + np.sum(here**2))
        spreads.append(
            max(float(np.mean(np.sum((beyond - first @ here.T) ** 2, axis=1) - expected)) / free, 0.0)
        )
        rows.append((here, beyond))
    for i in (0, 7):
        design = np.concatenate([np.eye(6), *(here for here, _ in rows)])
        variance = np.concatenate(
            [
                np.full(6, noise),
                *(
                    np.full(len(h), noise + told[0][0, i] * s)
                    for (h, _), s in zip(rows, spreads, strict=True)
                ),
            ]
        )
        seen = np.concatenate([first[i], *(beyond[i] for _, beyond in rows)])
        covariance = np.linalg.inv(design.T @ (design / variance[:, None]))
        np.testing.assert_allclose(
            moved[i], in_levels((covariance @ design.T @ (seen / variance))[None])[0], atol=1e-10
        )
        basis = contrasts(3)
        np.testing.assert_allclose(left[i, :3], np.diag(basis @ covariance[:2, :2] @ basis.T), rtol=1e-8)


def test_associations_of_ones_own_leave_the_sums_alone() -> None:
    _, levels, interactions = measured(400, own=3.0)
    moved, _ = improve(levels, interactions)
    np.testing.assert_allclose(moved, levels, atol=2e-3)


def test_one_client_off_the_pattern_is_not_forced_into_it(monkeypatch: pytest.MonkeyPatch) -> None:
    _, levels, interactions = measured(200)
    for j in range(3):
        here, shape = LAYOUT.slice(j), LAYOUT.shapes[j]
        interactions[0, here] += 0.5 * centre(np.random.default_rng(j).standard_normal(shape)).reshape(-1)
    off = np.abs(improve(levels, interactions)[0] - levels)
    monkeypatch.setattr(implied, "_factor", lambda told, shape: np.ones(shape))
    forced = np.abs(improve(levels, interactions)[0] - levels)
    assert off[0].max() < 0.5 * forced[0].max()
    np.testing.assert_allclose(off[1:].mean(), forced[1:].mean(), rtol=0.2)


def test_no_noise_and_too_much_work_leave_the_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    _, levels, interactions = measured(20)
    moved, left = improve(levels, interactions, noise=0.0)
    np.testing.assert_allclose(moved, levels, atol=1e-12)
    assert not left.any()
    monkeypatch.setattr(implied, "_WORK", 0.0)
    moved, left = improve(levels, interactions)
    np.testing.assert_allclose(moved, levels, atol=1e-12)
    np.testing.assert_allclose(left[:, 7:], 2e-3 * 0.5, rtol=1e-9)


def test_blocks_of_clients_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    _, levels, interactions = measured(25, own=0.05)
    whole = improve(levels, interactions)
    monkeypatch.setattr(implied, "_BLOCK", 36 * 4)
    for one, other in zip(whole, improve(levels, interactions), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_marginals_of_simulated_states_come_nearer_to_the_truth() -> None:
    """Six draws at ε = 0.1: the mean squared error of the marginals falls in each."""
    schema = synthetic.schema()
    frames = dict(list(synthetic.states(seed=3, scale=0.05).items())[:24])
    plan = fw.plan(schema, epsilon=0.1)
    exact = np.stack([count(schema.encode(frame), plan.layout).exact for frame in frames.values()]).astype(
        float
    )
    noise = np.random.default_rng(5).standard_normal((6, *exact.shape)) * plan.layout.per_cell(plan.sigmas)
    truth = split(exact, plan.layout, np.zeros(plan.layout.tables))[0]
    own = truth.effects / truth.totals[:, None]
    tables = [
        (exact[:, plan.layout.slice(j)].sum(axis=0) / exact[:, plan.layout.slice(j)].sum()).reshape(1, *shape)
        for j, shape in enumerate(plan.layout.shapes)
    ]
    for one in noise:
        parts = split(exact + one, plan.layout, plan.sigmas)[0]
        seen = parts.effects / truth.totals[:, None]
        pool = (truth.totals / truth.totals.sum()) @ own
        moved, _ = improved(
            (seen - pool)[None], np.tile(variances(plan.layout, plan.sigmas).effects, (len(exact), 1)),
            parts.interactions[None], truth.totals[None], np.tile(plan.sigmas**2, (len(exact), 1)), tables,
            [np.ones((1, len(exact)))] * plan.layout.tables, plan.layout, np.ones(1),
        )  # fmt: skip
        assert np.mean((pool + moved[0] - own) ** 2) < 0.95 * np.mean((seen - own) ** 2)


def test_trust_grows_with_the_share_of_noise() -> None:
    noise = [np.full((1, 5, 1), v) for v in (1.0, 1.0)]
    for tau, expected in ((9.0, 0.0), (1.3, 0.0), (1.0, 0.25), (0.25, 1.0), (0.0, 1.0)):
        assert noise_trust(noise, [np.full((1, 3), tau)] * 2) == pytest.approx(expected, abs=1e-9)
    assert noise_trust([np.zeros((2, 5, 1))], [np.zeros((2, 3))]).tolist() == [0.0, 0.0]


def test_without_trust_the_sums_stay() -> None:
    _, levels, interactions = measured(30)
    moved, left = improve(levels, interactions, trust=0.0)
    np.testing.assert_allclose(moved, levels, atol=1e-12)
    np.testing.assert_allclose(left[:, 7:], 2e-3 * 0.5, rtol=1e-9)
