"""Outliers: the robust distance against a slow reference, what it ignores and what it sees."""

from __future__ import annotations

import itertools
import statistics

import numpy as np
import pytest

from fedwise.estimation.consistency import combine, variances
from fedwise.owner.tables import count
from fedwise.pool.outliers import LEAST_CLIENTS, Scores, association_scores, standardised
from fedwise.schema.layout import Layout

NAMES, SIZES = ("A", "B", "T"), (3, 4, 2)
LAYOUT = Layout(NAMES, SIZES, tuple(itertools.combinations(range(3), 2)))


def people(rows: int, rng: np.random.Generator, *, pull: float = 1.0) -> np.ndarray:
    hidden = rng.standard_normal(rows)
    cuts = [np.linspace(-0.8, 0.8, size - 1) for size in SIZES]
    lines = [np.digitize(pull * hidden + rng.standard_normal(rows), cut) for cut in cuts]
    return np.stack(lines).astype(np.int16)


def pool(rows: list[int], seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.stack([count(people(n, rng, pull=1 + 0.1 * rng.standard_normal()), LAYOUT).exact for n in rows])


def scores(matrix: np.ndarray, sigma: float = 0.0) -> Scores:
    sigmas = np.full(LAYOUT.tables, sigma)
    totals, _, _ = combine(matrix, LAYOUT, sigmas)
    variance = variances(LAYOUT, sigmas).total if sigma else 0.0
    return association_scores(matrix, LAYOUT, sigmas, totals=totals, total_variance=variance)


def slow_distance(values: list[float], noise: list[float]) -> list[float]:
    """One statistic in plain Python: the smallest spread, on a fine grid, at which the median is small enough."""
    middle = statistics.median(values)
    squared = [(v - middle) ** 2 for v in values]
    for spread in itertools.chain([0.0], np.geomspace(1e-8, 1e4, 60_001)):
        if (
            statistics.median(s / (v + spread) for s, v in zip(squared, noise, strict=True))
            <= 0.4549364231195724
        ):
            break
    spread = max(spread, (0.1 * middle) ** 2)
    return [(v - middle) / (n + spread) ** 0.5 for v, n in zip(values, noise, strict=True)]


@pytest.mark.parametrize(("clients", "wide"), [(9, 1.0), (10, 0.0), (15, 5.0)])
def test_against_plain_python(clients: int, wide: float) -> None:
    rng = np.random.default_rng(clients)
    noise = rng.uniform(0.1, 2.0, (clients, 1))
    values = wide * rng.standard_normal((clients, 1)) + np.sqrt(noise) * rng.standard_normal((clients, 1))
    slow = slow_distance(values[:, 0].tolist(), noise[:, 0].tolist())
    np.testing.assert_allclose(standardised(values, noise)[:, 0], slow, rtol=1e-3, atol=1e-9)


def test_pure_noise_is_standard_normal() -> None:
    """With no spread between 4,000 clients, distances have the law of the noise: a standard deviation of 1."""
    rng = np.random.default_rng(1)
    noise = rng.uniform(0.5, 4.0, (4000, 3))
    found = standardised(np.sqrt(noise) * rng.standard_normal(noise.shape), noise)
    assert found.std() == pytest.approx(1.0, abs=0.06)  # five standard errors of both spread and median
    # Told half the variance, the spread makes up for it: distances stay honest.
    assert standardised(np.sqrt(noise) * rng.standard_normal(noise.shape), noise / 2).std() < 1.2


def test_a_third_of_liars_does_not_hide_itself() -> None:
    rng = np.random.default_rng(2)
    values = rng.standard_normal((60, 1))
    values[:18] += 30.0
    found = standardised(values, np.full((60, 1), 0.01))[:, 0]
    assert found[:18].min() > 10
    assert np.abs(found[18:]).max() < 5


def test_size_alone_and_tiny_clients_score_nothing() -> None:
    matrix = pool([2000] * 12, seed=3)
    base = scores(matrix).score
    matrix[0] = matrix[0] * 50
    assert scores(matrix).score[0] < base.max() + 2
    rng = np.random.default_rng(4)
    noisy = pool([3000] * 11 + [3], seed=4) + np.rint(20 * rng.standard_normal((12, LAYOUT.cells))).astype(
        int
    )
    assert scores(noisy, 20.0).score.max() < 7


@pytest.mark.parametrize("sigma", [0.0, 5.0])
def test_reversed_and_invented_associations_score(sigma: float) -> None:
    rng = np.random.default_rng(5)
    matrix = pool([3000] * 12, seed=5)
    flipped = people(3000, rng)
    flipped[2] = 1 - flipped[2]
    matrix[2] = count(flipped, LAYOUT).exact
    matrix[7] = count(people(3000, rng, pull=20.0), LAYOUT).exact
    matrix = matrix + np.rint(sigma * rng.standard_normal(matrix.shape)).astype(np.int64)
    found = scores(matrix, sigma)
    assert set(np.flatnonzero(found.score > 7)) == {2, 7}
    assert 2 in LAYOUT.pairs[found.table[2]]
    assert not found.stronger[2]
    assert found.stronger[7]


def test_few_clients_and_empty_ones() -> None:
    few = pool([500] * (LEAST_CLIENTS - 1))
    few[0] = few[0][::-1] * 100
    assert not scores(few).score.any()
    nobody = np.zeros((10, LAYOUT.cells), dtype=np.int64)
    for sigma in (0.0, 3.0):
        assert np.isfinite(scores(nobody, sigma).score).all()
        assert scores(nobody, sigma).score.max() == 0.0
