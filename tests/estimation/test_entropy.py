"""c·ln c of noisy counts: unbiased within the stated bounds."""

from __future__ import annotations

import numpy as np
import pytest

from fedwise.estimation.entropy import debiased


def expectation(count: float, scale: float) -> float:
    z = np.linspace(-8, 8, 16_001)
    chance = np.exp(-0.5 * z**2)
    return float(np.sum(chance / chance.sum() * debiased(count + scale * z, scale)))


@pytest.mark.parametrize("scale", [1.0, 37.0, 1e-4])
def test_bias_is_within_the_stated_bounds(scale: float) -> None:
    for u in np.concatenate([np.linspace(0, 4, 81), [5, 7, 9, 12, 14, 20, 100]]):
        count = u * scale
        true = count * np.log(count) if count > 0 else 0.0
        bound = 0.01 if u > 4 else 0.18
        assert abs(expectation(count, scale) - true) < bound * scale


def test_plug_in_would_fail_the_same_bound() -> None:
    z = np.random.default_rng(0).standard_normal(200_000)
    noisy = np.maximum(0.5 + z, 1e-300)
    assert np.mean(noisy * np.log(noisy)) - 0.5 * np.log(0.5) > 0.5


def test_without_noise_it_is_the_plug_in() -> None:
    np.testing.assert_allclose(debiased(np.array([0.0, 1.0, 5.0, -2.0]), 0.0), [0, 0, 5 * np.log(5), 0])
