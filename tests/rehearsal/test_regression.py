"""Regression: beside Henderson's mixed model equations and a likelihood of what stages leave free."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import linalg, stats

from fedwise.rehearsal import regression
from fedwise.rehearsal.regression import regress


def example(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(12, 4)) / 2
    which, stage = rng.integers(0, 12, 30), np.append(rng.integers(0, 3, 27), [0, 1, 2])
    values = (
        features[which] @ rng.normal(size=4) + rng.normal(size=12)[which] + stage + 0.5 * rng.normal(size=30)
    )
    return features, which, stage, values


@pytest.mark.parametrize("seed", range(5))
def test_means_are_those_of_the_mixed_model_equations(monkeypatch, seed) -> None:
    effect, own = 3.0, 0.7
    monkeypatch.setattr(regression, "_EFFECTS", (effect,))
    monkeypatch.setattr(regression, "_FEDERATIONS", (own,))
    features, which, stage, values = example(seed)
    found = regress(features, which, stage, values)
    of_stage, design = np.eye(3)[stage], np.concatenate([features[which], np.eye(12)[which]], axis=1)
    precision = linalg.block_diag(np.zeros((3, 3)), np.eye(4) / effect, np.eye(12) / own)
    every = np.concatenate([of_stage, design], axis=1)
    inverse = np.linalg.inv(every.T @ every + precision)
    expected = inverse @ every.T @ values
    assert found.levels == pytest.approx(expected[:3])
    assert found.effects == pytest.approx(expected[3:7])
    assert found.apart == pytest.approx(expected[7:])


@pytest.mark.parametrize("seed", range(5))
def test_variances_are_those_of_largest_restricted_likelihood(seed) -> None:
    features, which, stage, values = example(seed)
    free = linalg.null_space(np.eye(3)[stage].T)
    rest = free.T @ values

    def likelihood(effect: float, own: float) -> float:
        covariance = (
            effect * features[which] @ features[which].T + own * (which[:, None] == which) + np.eye(30)
        )
        inside = free.T @ covariance @ free
        noise = float(rest @ np.linalg.solve(inside, rest)) / len(rest)
        return float(stats.multivariate_normal(np.zeros(len(rest)), noise * inside).logpdf(rest))

    grid = [(effect, own) for effect in regression._EFFECTS for own in regression._FEDERATIONS]
    effect, own = max(grid, key=lambda one: likelihood(*one))
    apart = regress(features, which, stage, values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(regression, "_EFFECTS", (effect,))
        patch.setattr(regression, "_FEDERATIONS", (own,))
        assert regress(features, which, stage, values).apart == pytest.approx(apart.apart)


def test_what_is_open_of_effects_is_their_posterior_covariance(monkeypatch) -> None:
    monkeypatch.setattr(regression, "_EFFECTS", (2.0,))
    monkeypatch.setattr(regression, "_FEDERATIONS", (0.0,))
    features, which, stage, values = example(1)
    found = regress(features, which, stage, values)
    design = features[which]
    covariance = 2.0 * design @ design.T + np.eye(30)
    rest = values - np.eye(3)[stage] @ found.levels
    noise = float(rest @ np.linalg.solve(covariance, rest)) / 27
    expected = noise * np.linalg.inv(design.T @ design + np.eye(4) / 2.0)
    assert found.root @ found.root.T == pytest.approx(expected)


def test_extremes() -> None:
    features = np.random.default_rng(0).normal(size=(4, 3))
    nothing = regress(features, np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    assert not nothing.effects.any()
    assert len(nothing.levels) == 0
    one = regress(features, np.array([2]), np.array([0]), np.array([0.7]))
    assert one.levels == pytest.approx([0.7])
    assert one.apart == pytest.approx(0.0)
    same = regress(features, np.arange(4), np.zeros(4, np.int64), np.full(4, 0.5))
    assert features @ same.effects + same.apart == pytest.approx(0.0)
    assert np.isfinite(same.root).all()
