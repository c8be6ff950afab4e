"""Copies: the search against brute force, the bound against simulation, and what it must and must not see."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from fedwise.pool.copies import independent, least_root, twins

ALARM = 1e-6


def noise(rng: np.random.Generator, shape: tuple[int, ...], scales: np.ndarray) -> np.ndarray:
    return np.rint(rng.standard_normal(shape) * scales).astype(np.int64)


def brute_force(matrix: np.ndarray, scales: np.ndarray, alarm: float = ALARM) -> set[int]:
    """Every pair by numpy's singular values: who has any partner that is too close."""
    n = len(matrix)
    found: set[int] = set()
    for i, j in itertools.combinations(range(n), 2):
        both = np.stack([matrix[i], matrix[j]]) / scales
        least = float(np.linalg.svd(both, compute_uv=False)[-1]) ** 2
        if n * (n - 1) / 2 * independent(least, matrix.shape[1]) < alarm:
            found |= {i, j}
    return found


def members(pairs: list) -> set[int]:  # type: ignore[type-arg]
    return {i for pair in pairs for i in (pair.first, pair.second)}


@pytest.mark.parametrize("cells", [2, 3, 10, 60])
def test_the_bound_covers_the_smallest_root_of_pure_noise(cells: int) -> None:
    """40,000 pairs of pure noise: the share below t exceeds its bound by chance once in 10^6 (binomial)."""
    rng = np.random.default_rng(cells)
    draws = rng.standard_normal((40_000, 2, cells))
    gram = draws @ draws.transpose(0, 2, 1)
    roots = np.linalg.eigvalsh(gram)[:, 0]
    for level in (1e-3, 1e-2, 0.1):
        # A point chosen without looking at the draws.
        at = float(stats.chi2.ppf(level, cells - 1))
        below = int(np.sum(roots <= at))
        assert stats.binom.sf(below - 1, len(roots), independent(at, cells)) > 1e-6
    # A bound of 1 for everything would pass the above: it is tight where it matters.
    low = float(np.quantile(roots, 1e-3))
    assert independent(low, cells) < 3e-3


@pytest.mark.parametrize("strength", [0.3, 1.0, 5.0, 100.0])
def test_data_only_push_the_root_up(strength: float) -> None:
    """Whatever the means, the smallest root is below a quantile of pure noise no more often (1e-6)."""
    rng = np.random.default_rng(int(10 * strength))
    cells, draws = 12, 40_000
    mean = strength * rng.standard_normal(cells)
    means = {
        "equal": (mean, mean),
        "scaled": (mean, 3 * mean),
        "one": (mean, 0 * mean),
        "mirror": (mean, -mean),
    }
    for first, second in means.values():
        both = np.stack([first, second]) + rng.standard_normal((draws, 2, cells))
        roots = np.linalg.eigvalsh(both @ both.transpose(0, 2, 1))[:, 0]
        at = float(stats.chi2.ppf(1e-3, cells - 1))
        assert stats.binom.sf(int(np.sum(roots <= at)) - 1, draws, independent(at, cells)) > 1e-6


def test_the_least_root_keeps_its_digits_beside_a_huge_one() -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal(500)
    for factor in (1.0, 1e3, 1e7):
        big = factor * rng.standard_normal(500)
        off = rng.standard_normal(500)
        off -= big * (off @ big) / (big @ big)
        # Columns big and big + off: the root is about ‖off‖²/2 for big vectors.
        found = least_root(big, big + off)
        if factor > 1:
            assert found == pytest.approx(float(off @ off) / 2, rel=1e-4)
        exact = np.linalg.svd(np.stack([big, big + off]), compute_uv=False)[-1] ** 2
        assert found == pytest.approx(exact, rel=1e-6)
    assert least_root(a, a) == pytest.approx(0.0, abs=1e-20)
    assert least_root(a, -3 * a) == pytest.approx(0.0, abs=1e-20)
    assert least_root(np.zeros(3), np.zeros(3)) == 0.0


def crowd(seed: int, clients: int = 24, cells: int = 1200) -> tuple[np.ndarray, np.ndarray]:
    """Clients of which some have equal data, with independent noise."""
    rng = np.random.default_rng(seed)
    scales = rng.uniform(2, 9, cells)
    data = rng.integers(0, 500, (clients, cells))
    data[1::4] = data[0]
    data[2::4] = 0
    return data + noise(rng, data.shape, scales), scales


MADE = {
    "copy": (1.0, 0.0),
    "copy + tenth noise": (1.0, 0.1),
    "copy + half noise": (1.0, 0.5),
    "copy + full noise": (1.0, 1.0),
    "half copy + noise to fit": (0.5, 0.75**0.5),
    "mirror": (-1.0, 0.0),
    "tenfold": (10.0, 0.0),
}


@pytest.mark.parametrize("case", MADE)
def test_releases_made_from_another_are_found(case: str) -> None:
    scale, fresh = MADE[case]
    matrix, scales = crowd(1)
    rng = np.random.default_rng(2)
    for source in (3, 2, 0):  # large, empty, and one of many with equal data
        doctored = matrix.copy()
        doctored[11] = np.rint(scale * matrix[source]) + noise(rng, scales.shape, fresh * scales)
        assert members(twins(doctored, scales, false_alarm=ALARM)) == {source, 11}
        assert brute_force(doctored, scales) == {source, 11}
    assert twins(matrix, scales, false_alarm=ALARM) == []


def test_far_enough_noise_is_no_longer_seen() -> None:
    # λ ≈ s²/2: at s = 2 nothing is left to see here; the disagreement of its tables gives such a copy away.
    matrix, scales = crowd(3)
    matrix[11] = matrix[3] + noise(np.random.default_rng(4), scales.shape, 2 * scales)
    assert twins(matrix, scales, false_alarm=ALARM) == []


@pytest.mark.parametrize("seed", range(6))
def test_against_brute_force(seed: int) -> None:
    """Copies of all kinds at once, some just at the edge: the same clients as by looking at every pair."""
    rng = np.random.default_rng(seed)
    matrix, scales = crowd(seed + 10, clients=30, cells=int(rng.integers(30, 300)))
    for who in rng.permutation(30)[:8]:
        source = int(rng.integers(30))
        fresh = noise(rng, scales.shape, rng.uniform(0, 1.5) * scales)
        matrix[who] = np.rint(rng.choice([0.5, 1.0, 2.0]) * matrix[source]) + fresh
    for alarm in (ALARM, 1e-2):
        assert members(twins(matrix, scales, false_alarm=alarm)) == brute_force(matrix, scales, alarm)


def test_a_sample_of_cells_finds_the_same() -> None:
    """Large pools are searched on some cells: the pairs found there are tested on all of them."""
    rng = np.random.default_rng(5)
    cells, clients = 2000, 700
    scales = np.full(cells, 3.0)
    matrix = rng.integers(0, 50, (clients, cells)) + noise(rng, (clients, cells), scales)
    for who, source, scale, fresh in ((5, 600, 1.0, 1.0), (650, 40, 0.5, 0.75**0.5), (99, 100, 1.0, 0.2)):
        matrix[who] = np.rint(scale * matrix[source]) + noise(rng, (cells,), fresh * scales)
    found = twins(matrix, scales, false_alarm=ALARM, numbers=0)
    assert [(pair.first, pair.second) for pair in found] == [(5, 600), (40, 650), (99, 100)]
    assert found == twins(matrix, scales, false_alarm=ALARM, numbers=10**9)
    assert found == twins(matrix, scales, false_alarm=ALARM, numbers=0)


def test_honest_pools_of_equal_data_hold_no_copies() -> None:
    """300 pools of ten clients with the same data: at a level of 0.05, alarms in no more than that many.

    The number of alarms exceeds the binomial(300, 0.05) by chance once in 10^6.
    """
    rng = np.random.default_rng(6)
    scales = rng.uniform(1, 5, 50)
    data = rng.integers(0, 30, 50)
    alarms = 0
    for _ in range(300):
        matrix = data + noise(rng, (10, 50), scales)
        alarms += bool(twins(matrix, scales, false_alarm=0.05))
    assert alarms <= stats.binom.isf(1e-6, 300, 0.05)


def test_the_rate_is_not_a_matter_of_course() -> None:
    # Told a noise twice as wide as it is, the search takes honest clients for copies.
    matrix, scales = crowd(7)
    assert len(members(twins(matrix, 2 * scales, false_alarm=ALARM))) > 10


def test_nothing_to_compare() -> None:
    one = np.ones((1, 5), dtype=np.int64)
    assert twins(one, np.ones(5), false_alarm=ALARM) == []
    assert twins(np.ones((3, 1), dtype=np.int64), np.ones(1), false_alarm=ALARM) == []
