"""Sampled Shapley values against the exact ones of small games."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fedwise.search.shapley import sample_shapley

MEMBERS = 5
#: Value of every coalition of five, as a bit mask; nobody is worth 0.3.
WORTH = np.random.default_rng(7).normal(size=2**MEMBERS)
WORTH[0] = 0.3


def along(paths: np.ndarray) -> np.ndarray:
    return WORTH[np.cumsum(2**paths, axis=1)]


def exact() -> np.ndarray:
    paths = np.array(list(itertools.permutations(range(MEMBERS))))
    changes = np.diff(along(paths), axis=1, prepend=WORTH[0])
    return np.array([changes[paths == member].mean() for member in range(MEMBERS)])


def sample(orders: int, seed: int, *, mirrored: bool = False) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return sample_shapley(along, MEMBERS, orders=orders, rng=rng, empty=WORTH[0], mirrored=mirrored)


@pytest.mark.parametrize("mirrored", [False, True])
def test_means_are_the_exact_values(mirrored: bool) -> None:
    """Five normal means within five of their errors: a false alarm in fewer than 1 of 300,000 seeds."""
    means, errors = sample(4000, 1, mirrored=mirrored)
    assert np.all(np.abs(means - exact()) < 5 * errors)
    assert np.all(errors < 0.05)
    assert not np.all(np.abs(means - exact()[::-1]) < 5 * errors)  # the values of others are told apart


@pytest.mark.parametrize("mirrored", [False, True])
def test_means_sum_to_the_whole(mirrored: bool) -> None:
    means, _ = sample(3, 2, mirrored=mirrored)
    assert means.sum() == pytest.approx(WORTH[-1] - WORTH[0], rel=1e-12)


@pytest.mark.parametrize("mirrored", [False, True])
def test_errors_are_those_of_repeated_draws(mirrored: bool) -> None:
    """400 repeats know a standard deviation to 3.5%; 20% is beyond five of that."""
    found = [sample(50, seed, mirrored=mirrored) for seed in range(400)]
    spread = np.std([means for means, _ in found], axis=0)
    stated = np.sqrt(np.mean([errors**2 for _, errors in found], axis=0))
    assert stated == pytest.approx(spread, rel=0.2)


def test_mirrored_orders_cancel_what_depends_on_the_place() -> None:
    """A member's share of (members joined)² depends on its place alone: a pair of orders gives every one the same."""

    def square(paths: np.ndarray) -> np.ndarray:
        return np.broadcast_to(np.arange(1, MEMBERS + 1) ** 2, paths.shape).astype(float)

    _, plain = sample_shapley(square, MEMBERS, orders=20, rng=np.random.default_rng(0))
    means, errors = sample_shapley(square, MEMBERS, orders=20, rng=np.random.default_rng(0), mirrored=True)
    assert np.all(plain > 0.1)
    assert means == pytest.approx(np.full(MEMBERS, MEMBERS))
    assert errors == pytest.approx(np.zeros(MEMBERS), abs=1e-12)
