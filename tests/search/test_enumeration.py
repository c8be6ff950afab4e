"""Revolving-door order against its definition."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from fedwise.search.enumeration import advance, rank_of, unrank

SIZES = [(n, k) for n in range(1, 9) for k in range(1, n + 1)]


@pytest.mark.parametrize(("n", "k"), SIZES)
def test_visits_every_subset_once_one_swap_at_a_time(n, k):
    subset = unrank(0, k, n)
    seen = [tuple(subset)]
    for _ in range(math.comb(n, k) - 1):
        before = set(subset.tolist())
        out, into = advance(subset, n)
        after = set(subset.tolist())
        assert before - after == {out}
        assert after - before == {into}
        assert list(subset) == sorted(subset)
        seen.append(tuple(int(i) for i in subset))
    assert sorted(seen) == list(itertools.combinations(range(1, n + 1), k))


@pytest.mark.parametrize(("n", "k"), SIZES)
def test_rank_and_unrank_are_inverse_and_agree_with_the_order(n, k):
    subset = unrank(0, k, n)
    for position in range(math.comb(n, k)):
        assert rank_of(subset) == position
        assert np.array_equal(unrank(position, k, n), subset)
        if position + 1 < math.comb(n, k):
            advance(subset, n)


def test_ranks_of_large_sizes():
    total = math.comb(50, 15)
    for position in (0, 1, 12345678901, total // 2, total - 1):
        assert rank_of(unrank(position, 15, 50)) == position
