"""Noise: what is drawn is the discrete Gaussian, one scale a table, never the same twice.

OpenDP's sampler takes no seed, so these tests are not repeatable by design. Every statistical check here
has a false-alarm rate of 1e-7 at most; there are fewer than 50 of them, so an honest sampler fails
this file less than once in 200,000 runs.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import chi2, norm

import fedwise as fw
from conftest import make_people
from fedwise.owner.noise import add_noise, add_simulated_noise, no_noise
from fedwise.owner.tables import Tables, count
from fedwise.schema.layout import Layout

ALARM = 1e-7


def zeros(*cells: int) -> Tables:
    """Empty tables with the given numbers of cells."""
    names = tuple(f"v{i}" for i in range(2 * len(cells)))
    sizes = tuple(size for cell in cells for size in (1, cell))
    layout = Layout(names, sizes, tuple((2 * i, 2 * i + 1) for i in range(len(cells))))
    return Tables(layout, np.zeros(layout.cells, dtype=np.int64))


def p_value(draws: np.ndarray, sigma: float) -> float:
    """χ² test of integer draws against the discrete Gaussian; outcomes are pooled to 10 expected or more."""
    reach = math.ceil(12 * sigma) + 2
    outcomes = np.arange(-reach, reach + 1)
    mass = np.array([math.exp(-(z**2) / (2 * sigma**2)) for z in outcomes.tolist()])
    expected = len(draws) * mass / mass.sum()
    seen = np.bincount(np.clip(draws, -reach, reach) + reach, minlength=len(outcomes))
    group = np.minimum((np.cumsum(expected) / 10).astype(int), int(len(draws) / 10) - 1)
    pooled = np.bincount(group, weights=expected)
    found = np.bincount(group, weights=seen)
    keep = pooled > 0
    pooled, found = pooled[keep], found[keep]
    if pooled[-1] < 5:
        pooled = np.append(pooled[:-2], pooled[-2:].sum())
        found = np.append(found[:-2], found[-2:].sum())
    return float(chi2.sf(((found - pooled) ** 2 / pooled).sum(), len(pooled) - 1))


def check_moments(draws: np.ndarray, sigma: float) -> None:
    """Mean 0 and variance of the discrete Gaussian, by normal and χ² approximations."""
    support = np.arange(-math.ceil(12 * sigma) - 2, math.ceil(12 * sigma) + 3)
    mass = np.exp(-(support**2) / (2 * sigma**2))
    variance = float((support**2 * mass).sum() / mass.sum())
    fourth = float((support**4 * mass).sum() / mass.sum())
    bound = norm.isf(ALARM / 2)
    assert abs(draws.mean()) < bound * math.sqrt(variance / len(draws))
    spread = math.sqrt((fourth - variance**2) / len(draws))
    assert abs((draws.astype(float) ** 2).mean() - variance) < (bound + 1) * spread


def test_opendp_draws_the_discrete_gaussian_with_one_scale_a_table() -> None:
    sigmas = np.array([0.6, 2.0, 27.7])
    tables = zeros(1500, 4000, 4000)
    noisy = add_noise(tables, sigmas)
    assert noisy.dtype == np.int64
    assert not tables.exact.any()
    for j, sigma in enumerate(sigmas):
        draws = noisy[tables.layout.slice(j)]
        assert p_value(draws, sigma) > ALARM
        check_moments(draws, sigma)
    # The same code catches every other scale in the release.
    for j, sigma in enumerate(sigmas):
        for other in sigmas[sigmas != sigma]:
            assert p_value(noisy[tables.layout.slice(j)], other) < ALARM


def test_real_noise_is_independent_over_tables_and_releases() -> None:
    tables = zeros(1200, 1200)
    first, second = (add_noise(tables, np.array([5.0, 5.0])) for _ in range(2))
    bound = norm.isf(ALARM / 2) / math.sqrt(1200)
    a, b = first[:1200], first[1200:]
    c = second[:1200]
    for x, y in [(a, b), (a, c), (b, c), (a[1:], a[:-1]), (c[2:], c[:-2])]:
        assert abs(np.corrcoef(x, y)[0, 1]) < bound
    assert (a != c).mean() > 0.5


def test_the_release_adds_this_noise_to_the_exact_counts(small_schema: fw.Schema) -> None:
    # Standardised noise of whole releases: 40 releases of 44 cells, over all tables.
    plan = fw.plan(small_schema)
    people = make_people(300)
    exact = count(small_schema.encode(people), plan.layout).exact
    noise = np.stack([fw.release(plan, people, client="x", uncharged=True).counts - exact for _ in range(40)])
    scaled = noise / plan.layout.per_cell(plan.sigmas)
    total = float((scaled**2).sum())
    assert chi2.sf(total, scaled.size) > ALARM
    assert chi2.cdf(total, scaled.size) > ALARM
    assert len(np.unique(noise, axis=0)) == 40


@pytest.mark.parametrize("sigma", [0.3, 0.6, 2.0, 27.7, 300.0])
def test_simulated_noise_has_the_same_distribution(sigma: float) -> None:
    draws = add_simulated_noise(zeros(50_000), np.array([sigma]), np.random.default_rng(11))
    assert p_value(draws, sigma) > 1e-3
    if sigma > 0.5:
        check_moments(draws, sigma)


def test_simulated_noise_repeats_with_its_seed_only(small_schema: fw.Schema, people: object) -> None:
    plan = fw.plan(small_schema)

    def counts(client: str, seed: int) -> list[int]:
        return fw.release(plan, people, client=client, simulated=True, seed=seed).counts.tolist()

    assert counts("a", 1) == counts("a", 1)
    assert counts("a", 1) != counts("a", 2)
    assert counts("a", 1) != counts("b", 1)


@pytest.mark.parametrize("size", [1500, 50_000])
def test_the_test_catches_half_the_noise_and_rounded_normals(size: int) -> None:
    rng = np.random.default_rng(5)
    for sigma in (2.0, 27.7):
        half = add_simulated_noise(zeros(size), np.array([sigma / 2]), rng)
        assert p_value(half, sigma) < ALARM
    assert p_value(np.rint(rng.normal(0, 0.6, size)).astype(np.int64), 0.6) < ALARM
    assert p_value(np.trunc(rng.normal(0, 2.0, size)).astype(np.int64), 2.0) < ALARM
    shifted = add_simulated_noise(zeros(size), np.array([2.0]), rng) + 1
    assert p_value(shifted, 2.0) < ALARM


def test_no_noise_copies() -> None:
    tables = zeros(4)
    exact = no_noise(tables)
    exact += 1
    assert not tables.exact.any()
