"""Rank tests: against brute force, and uniform under the null."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ranks import Rank, base, holm, larger, least, pool, rank


def test_metric_names_carry_attribute_and_threshold() -> None:
    assert base("eod:WHITE@rate") == "eod"
    assert larger("balanced_accuracy@rate")
    assert not larger("loss")


def test_p_value_counts_as_good_or_better() -> None:
    population = np.array([0.1, 0.2, 0.3, 0.4])
    best = rank(0.05, population, "eod")
    assert (best.p_better, best.p_worse, best.good) == (1 / 5, 1.0, True)
    assert rank(0.05, population, "auc").p_worse == 1 / 5
    assert rank(0.5, population, "auc").p == pytest.approx(2 / 5)


def test_ties_count_against_both_sides() -> None:
    found = rank(0.2, np.array([0.2, 0.2, 0.2]), "auc")
    assert found.p_better == found.p_worse == found.p == 1.0
    assert found.standing == 0.5


def test_a_rank_needs_numbers() -> None:
    with pytest.raises(ValueError, match="needs numbers"):
        rank(float("nan"), np.array([1.0]), "auc")
    with pytest.raises(ValueError, match="needs numbers"):
        rank(1.0, np.empty(0), "auc")


@given(st.lists(st.integers(0, 4), min_size=2, max_size=7))
def test_rank_p_is_exact_under_the_null(values: list[int]) -> None:
    """Each of n + 1 values is as likely the chosen one: P(p ≤ a) ≤ a for every a, ties or not."""
    found = []
    for at in range(len(values)):
        rest = np.array([v for i, v in enumerate(values) if i != at], dtype=float)
        found.append(rank(float(values[at]), rest, "auc"))
    for level in np.arange(1, len(values) + 1) / len(values):
        for p in ([r.p_better for r in found], [r.p_worse for r in found], [r.p for r in found]):
            assert np.mean(np.array(p) <= level + 1e-12) <= level + 1e-12


@pytest.mark.parametrize("sizes", [(2, 3), (1, 2, 3)])
def test_pooled_p_is_the_share_of_all_rank_vectors(sizes: tuple[int, ...]) -> None:
    """Brute force: every vector of places is equally likely."""
    every = list(itertools.product(*(range(n + 1) for n in sizes)))
    for places in every:
        ranks = [Rank(good, n - good, n) for good, n in zip(places, sizes, strict=True)]
        expected = np.mean([sum(other) <= sum(places) for other in every])
        assert pool(ranks).p_better == pytest.approx(expected)
        mirrored = np.mean([sum(other) >= sum(places) for other in every])
        assert pool(ranks).p_worse == pytest.approx(mirrored)


def test_pooled_ranks_find_what_no_single_rank_can() -> None:
    ranks = [Rank(0, 8, 8)] * 5
    assert min(holm([one.p for one in ranks])) > 0.05
    assert pool(ranks).p == pytest.approx(2 / 9**5)
    assert pool(ranks).standing == 1.0


def _holm_by_definition(p: list[float], level: float) -> set[int]:
    """Reject the smallest while p ≤ level/(those left)."""
    rejected: set[int] = set()
    for at in sorted(range(len(p)), key=lambda i: p[i]):
        if p[at] > level / (len(p) - len(rejected)):
            break
        rejected.add(at)
    return rejected


@given(st.lists(st.floats(0.001, 1), min_size=1, max_size=8), st.sampled_from([0.01, 0.05, 0.2]))
def test_holm_rejects_what_its_definition_rejects(p: list[float], level: float) -> None:
    adjusted = holm(p)
    near = np.abs(adjusted - level) < 1e-9
    expected = _holm_by_definition(p, level)
    assert all(near[i] or (adjusted[i] <= level) == (i in expected) for i in range(len(p)))


def test_holm_works_on_rows() -> None:
    rows = np.array([[0.01, 0.04, 0.03], [0.5, 0.001, 0.9]])
    assert np.allclose(holm(rows), [holm(row) for row in rows])
    assert holm([]).size == 0


def test_two_hundred_random_federations_can_speak_on_five_tasks() -> None:
    assert least(5, 199) <= 0.05 + 1e-12
    assert least(5, 198) > 0.05
