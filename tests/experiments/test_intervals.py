"""Bootstrap intervals and correlations over federations."""

from __future__ import annotations

import numpy as np
import pytest
from intervals import correlation, correlation_p, gap, spearman
from scipy.stats import binomtest, spearmanr


def test_value_is_the_difference_of_means() -> None:
    found = gap(np.array([[1.0, 3.0], [2.0, 4.0]]), np.array([[1.0], [1.0]]))
    assert found.value == 1.5
    assert found.low < 1.5 < found.high
    assert found.clear == (found.low > 0)


def test_nothing_repeated_gives_no_interval() -> None:
    found = gap(np.array([[1.0]]), np.array([[0.5]]))
    assert np.isnan(found.low)
    assert not found.clear
    assert found.text() == "+0.500"


def test_sides_must_be_paired() -> None:
    with pytest.raises(ValueError, match="must have 2 splits"):
        gap(np.zeros((2, 1)), np.zeros((3, 1)))


def test_difficulty_of_a_split_cancels() -> None:
    """A split that is hard for both sides moves neither value nor interval."""
    rng = np.random.default_rng(0)
    chosen, other = rng.normal(size=(6, 4)), rng.normal(size=(6, 1))
    hard = 10 * rng.normal(size=(6, 1))
    plain, shifted = gap(chosen, other), gap(chosen + hard, other + hard)
    assert shifted.high - shifted.low == pytest.approx(plain.high - plain.low, rel=1e-6)


@pytest.mark.parametrize("random", [False, True])
def test_interval_covers(random: bool) -> None:
    """Splits, draws and federations add noise; 95% intervals cover at least 90% (false alarm below 1e-4)."""
    rng = np.random.default_rng(1)
    covered = 0
    for case in range(300):
        splits, draws, federations = 6, 8, 30 if random else 1
        chosen = (
            0.1
            + rng.normal(size=(splits, 1))
            + rng.normal(size=(1, draws))
            + rng.normal(size=(splits, draws))
        )
        other = rng.normal(size=(splits, federations)) + (rng.normal(size=(1, federations)) if random else 0)
        found = gap(chosen, other, replicates=300, seed=case)
        covered += found.low <= 0.1 <= found.high
    assert binomtest(covered, 300, 0.90, alternative="less").pvalue > 1e-4


def test_clients_in_common_widen_the_interval() -> None:
    """Federations of few clients: resampling federations covers too little, resampling clients enough."""
    rng = np.random.default_rng(2)
    covered = {"federations": 0, "clients": 0}
    widths = []
    for case in range(60):
        clients, federations = 30, 100
        members = np.zeros((federations, clients), dtype=bool)
        for row in members:
            row[rng.permutation(clients)[:5]] = True
        other = (members @ rng.normal(size=clients))[None]
        chosen = rng.normal(scale=0.01, size=(1, 40))
        for name, given in (("federations", None), ("clients", members)):
            found = gap(chosen, other, members=given, replicates=150, seed=case)
            covered[name] += found.low <= 0 <= found.high
        widths.append(found.high - found.low)
    # A sum of five of thirty scores of variance one: the mean over federations has a spread of about 5/√30.
    assert np.mean(widths) / 2 == pytest.approx(2 * 5 / np.sqrt(30), rel=0.25)
    assert covered["clients"] >= 0.9 * 60
    assert covered["federations"] < 0.6 * 60


def test_correlation_is_scipys() -> None:
    rng = np.random.default_rng(3)
    first = rng.integers(0, 5, 40).astype(float)
    second = first + rng.normal(size=40)
    assert spearman(first, second) == pytest.approx(spearmanr(first, second).statistic)
    found = correlation(first, second)
    assert found.low < found.value < found.high
    assert np.isnan(spearman(np.ones(3), np.arange(3.0)))


def test_correlation_over_federations_is_judged_by_clients() -> None:
    """With ever more federations the p-value is that of as many independent values as there are clients."""
    rng = np.random.default_rng(4)
    first, second = rng.normal(size=(2, 50))
    value = spearmanr(first, second)
    assert correlation_p(value.statistic, clients=50, federations=10**9) == pytest.approx(
        value.pvalue, rel=1e-4
    )
    assert correlation_p(0.3, clients=50, federations=200) > spearmanr_p(0.3, 200)
    assert correlation_p(1.0, clients=50, federations=200) == 0.0


def spearmanr_p(value: float, n: int) -> float:
    return correlation_p(value, clients=2 * n, federations=2 * n)
