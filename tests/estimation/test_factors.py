"""Factors: posterior against the direct Gaussian formula, and what they gain."""

from __future__ import annotations

import numpy as np
import pytest

from fedwise.estimation.factors import _Model, _posterior, factor_posterior


def test_posterior_is_that_of_the_joint_gaussian() -> None:
    rng = np.random.default_rng(0)
    loadings, own = rng.normal(size=(6, 2)), rng.uniform(0.2, 1, 6)
    x, d = rng.normal(size=(3, 6)), rng.uniform(0.1, 2, (3, 6))
    model = _Model(loadings, own, np.ones(2))
    mean, variance, _, _ = _posterior(x, d, model)
    prior = loadings @ loadings.T + np.diag(own)
    for i in range(3):
        gain = prior @ np.linalg.inv(prior + np.diag(d[i]))
        np.testing.assert_allclose(mean[i], gain @ x[i])
        np.testing.assert_allclose(variance[i], np.diag(prior - gain @ prior))


def world(
    seed: int, *, rank: int, clients: int = 50, levels: int = 40
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    true = rng.normal(size=(clients, rank)) @ rng.normal(size=(rank, levels)) + 0.3 * rng.normal(
        size=(clients, levels)
    )
    noise = np.broadcast_to(rng.uniform(0.5, 6.0, (clients, 1)), true.shape)
    return true, true + rng.normal(size=true.shape) * np.sqrt(noise), noise


def test_factors_beat_shrinkage_of_each_level_where_clients_share_structure() -> None:
    true, seen, noise = world(1, rank=3)
    spread = true.var(axis=0)
    mean, variance = factor_posterior(seen, noise, spread)
    alone = spread / (spread + noise) * seen
    assert np.mean((mean - true) ** 2) < 0.7 * np.mean((alone - true) ** 2)
    # Coverage of 2,000 values, correlated within clients; 95% ± 5.
    assert np.mean(np.abs(mean - true) < 1.96 * np.sqrt(variance)) == pytest.approx(0.95, abs=0.05)


def test_factors_cost_little_where_there_is_no_structure() -> None:
    rng = np.random.default_rng(2)
    true = rng.normal(size=(50, 40))
    noise = np.full(true.shape, 2.0)
    seen = true + rng.normal(size=true.shape) * np.sqrt(2.0)
    mean, _ = factor_posterior(seen, noise, np.ones(40))
    assert np.mean((mean - true) ** 2) < 1.15 * np.mean((seen / 3 - true) ** 2)


def test_few_clients_and_dead_levels_fall_back_to_plain_shrinkage() -> None:
    seen, noise = np.ones((3, 2)), np.full((3, 2), 2.0)
    mean, variance = factor_posterior(seen, noise, np.array([2.0, 0.0]))
    np.testing.assert_allclose(mean, [[0.5, 0.0]] * 3)
    np.testing.assert_allclose(variance, [[1.0, 0.0]] * 3)
