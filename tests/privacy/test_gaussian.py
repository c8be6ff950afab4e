"""The rounded Gaussian: its law, its exactness, and that the tests of it can fail.

The words come from the operating system: no seed. Each statistical test raises a false alarm with
probability at most `ALARM`, so a failure is a defect and not chance.
"""

from __future__ import annotations

import math
import os
from decimal import Decimal

import mpmath
import numpy as np
import pytest
from scipy import stats

from fedwise.errors import FedwiseError
from fedwise.privacy import gaussian
from fedwise.privacy.gaussian import LARGEST, box_muller, refine, rounded_gaussian

ALARM = 1e-9
SIGMAS = [0.3, 1.0, 3.7, 40.0]


def words(count: int) -> np.ndarray:
    return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


def law(sigma: float, k: np.ndarray) -> np.ndarray:
    """P(k) = Φ((k + ½)/σ) − Φ((k − ½)/σ)."""
    # By the upper tail of |k|: no cancellation far out.
    k = np.abs(k)
    return stats.norm.sf((k - 0.5) / sigma) - stats.norm.sf((k + 0.5) / sigma)


def fits(draws: np.ndarray, sigma: float) -> float:
    """p-value of Pearson's chi-square against the law; cells with fewer than 20 expected are joined."""
    reach = math.ceil(12 * sigma) + 1
    k = np.arange(-reach, reach + 1)
    expected = law(sigma, k) * len(draws)
    inner = k[expected >= 20]
    low, high = inner.min(), inner.max()
    seen = np.bincount(np.clip(draws, low, high) - low, minlength=high - low + 1)
    wanted = expected[(k >= low) & (k <= high)]
    wanted[0] += expected[k < low].sum()
    wanted[-1] += expected[k > high].sum()
    return float(stats.chisquare(seen, wanted * (len(draws) / wanted.sum())).pvalue)


@pytest.mark.parametrize("sigma", SIGMAS)
def test_draws_follow_the_closed_form(sigma: float) -> None:
    assert fits(rounded_gaussian(sigma, 200_000, words), sigma) > ALARM


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("factor", [0.5, 0.97, 1.03])
def test_the_check_of_the_law_can_fail(sigma: float, factor: float) -> None:
    """Half the noise, and 3% more or less of it, are seen."""
    assert fits(rounded_gaussian(sigma * factor, 200_000, words), sigma) < ALARM


@pytest.mark.parametrize("sigma", [1000.0, 2.0**20, 2.0**33])
def test_wide_draws_follow_the_normal_distribution(sigma: float) -> None:
    """Kolmogorov and Smirnov; rounding moves the distribution function by at most φ(0)/(2σ) < 0.0002."""
    draws = rounded_gaussian(sigma, 20_000, words)
    assert stats.kstest(draws / sigma, "norm").pvalue > ALARM
    assert stats.kstest(rounded_gaussian(sigma / 2, 20_000, words) / sigma, "norm").pvalue < ALARM


@pytest.mark.parametrize("sigma", SIGMAS)
def test_moments(sigma: float) -> None:
    """Mean 0; variance by the law; both within 6.2 standard errors (one false alarm in 10⁹)."""
    n = 200_000
    draws = rounded_gaussian(sigma, n, words).astype(np.float64)
    k = np.arange(-math.ceil(14 * sigma) - 2, math.ceil(14 * sigma) + 3)
    variance, fourth = (float(np.sum(law(sigma, k) * k.astype(np.float64) ** power)) for power in (2, 4))
    assert abs(draws.mean()) < 6.2 * math.sqrt(variance / n)
    assert abs((draws**2).mean() - variance) < 6.2 * math.sqrt((fourth - variance**2) / n)
    if sigma >= 1:
        assert variance == pytest.approx(sigma**2 + 1 / 12, abs=1e-6)


def test_draws_of_a_pair_are_independent() -> None:
    """Cosine and sine of one angle: neither values nor squares are correlated (6.2 standard errors each)."""
    n = 200_000
    draws = rounded_gaussian(100.0, n, words).astype(np.float64)
    first, second = draws[: n // 2], draws[n // 2 :]
    for power in (1, 2):
        r = np.corrcoef(first**power, second**power)[0, 1]
        assert abs(r) < 6.2 / math.sqrt(n / 2)
        neighbours = np.corrcoef(draws[1:] ** power, draws[:-1] ** power)[0, 1]
        assert abs(neighbours) < 6.2 / math.sqrt(n)


def _pairs() -> tuple[np.ndarray, np.ndarray]:
    """Random words and the edges: least and largest first word, quarters of the circle."""
    first, second = words(1000), words(1000)
    edges = [2**44, 2**44 + 1, 2**50, 2**63, 2**64 - 1, 2**64 - 2, 2**64 - 2**12, 2**64 - 2**30]
    turns = [0, 1, 2**62 - 1, 2**62, 2**63 - 1, 2**63, 3 * 2**62, 2**64 - 1]
    grid = np.array([(a, b) for a in edges for b in turns], dtype=np.uint64)
    return np.concatenate([first, grid[:, 0]]), np.concatenate([second, grid[:, 1]])


def test_double_precision_is_right_within_the_stated_slack() -> None:
    """Against 80 digits and any continuation of the 64 bits."""
    first, second = _pairs()
    with np.errstate(divide="ignore"):
        values, radius = box_muller(first, second)
        slack = gaussian._SLACK * (1 + radius + 1 / radius)
    for rest in (0, 2**192 - 1):
        for n in range(len(first)):
            exact = gaussian._exact_pair((int(first[n]) << 192) | rest, (int(second[n]) << 192) | rest)
            for value, right in zip(values[:, n], exact, strict=True):
                assert abs(Decimal(float(value)) - right) <= Decimal(float(slack[n]))


def test_eighty_digits_are_right() -> None:
    mpmath.mp.dps = 90
    for _ in range(20):
        a, b = (int.from_bytes(os.urandom(32), "big") for _ in range(2))
        u, v = (mpmath.mpf(2 * n + 1) / mpmath.mpf(2) ** 257 for n in (a, b))
        radius = mpmath.sqrt(-2 * mpmath.log(u))
        wanted = radius * mpmath.cos(2 * mpmath.pi * v), radius * mpmath.sin(2 * mpmath.pi * v)
        for found, right in zip(gaussian._exact_pair(a, b), wanted, strict=True):
            assert abs(mpmath.mpf(str(found)) - right) < mpmath.mpf(10) ** -75


def test_the_slow_way_and_the_fast_way_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same words through 80 digits only: the same integers."""
    fixed = words(2000)

    def again(count: int) -> np.ndarray:
        return fixed[:count]

    fast = rounded_gaussian(2.0**20, 1999, again)
    monkeypatch.setattr(gaussian, "_SLACK", 1.0)
    seen = []
    monkeypatch.setattr(gaussian, "refine", lambda *args: seen.append(1) or refine(*args))
    np.testing.assert_array_equal(fast, rounded_gaussian(2.0**20, 1999, again))
    assert len(seen) == 1000


def test_a_value_near_a_half_is_decided_by_further_bits() -> None:
    """U₂ a hair below and above the angle where σ·R·cos θ is a half: only the bits after the 64th tell."""
    first = 2**63  # R = √(2 ln 2)
    sigma = 2.0**60
    low = refine(sigma, first, 123456789, np.zeros(6, dtype=np.uint64))
    high = refine(sigma, first, 123456789, np.full(6, 2**64 - 1, dtype=np.uint64))
    assert low != high
    assert abs(low[0] - high[0]) < 2.0**60 * 2**-58


def test_the_least_and_the_largest_words_are_no_special_case() -> None:
    def only(value: int):
        return lambda count: np.full(count, value, dtype=np.uint64)

    # U₁ ≈ 2⁻²⁵⁶ is the farthest a draw can be: 18.8 standard deviations; U₁ ≈ 1 is the nearest.
    far = rounded_gaussian(1000.0, 2, only(0))
    assert 18_800 < far[0] < 18_900
    assert abs(far[1]) <= 1
    assert rounded_gaussian(1000.0, 2, only(2**64 - 1)).tolist() == [0, 0]


def test_sizes_and_scales() -> None:
    for count in (0, 1, 2, 7):
        assert rounded_gaussian(5.0, count, words).shape == (count,)
    assert not rounded_gaussian(0.0, 5, words).any()
    for wrong in (-1.0, math.nan, math.inf, 2 * LARGEST):
        with pytest.raises(FedwiseError, match="scale of the noise must be between 0 and"):
            rounded_gaussian(wrong, 1, words)
