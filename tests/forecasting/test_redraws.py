"""Redraws: every redraw is made once, from its seed and number, whoever asks and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from fedwise.forecasting.redraws import RedrawCache

MEMBERS = np.array([0, 2])


def by_hand(draws: int, seed: int) -> np.ndarray:
    """What the cache must answer for rows of standard normal numbers."""
    rows = [np.random.default_rng([seed, 17, number]).normal(size=(3, 4)) for number in range(draws)]
    return np.stack([one[MEMBERS].sum(axis=0) for one in rows])


def test_more_draws_continue_from_fewer() -> None:
    made: list[int] = []

    def make(generators: Sequence[np.random.Generator]) -> list[np.ndarray]:
        made.extend(1 for _ in generators)
        return [rng.normal(size=(3, 4)) for rng in generators]

    cache = RedrawCache(make)
    np.testing.assert_allclose(cache.sums(MEMBERS, draws=2, seed=5), by_hand(2, 5), rtol=1e-5)
    np.testing.assert_allclose(cache.sums(MEMBERS, draws=4, seed=5), by_hand(4, 5), rtol=1e-5)
    np.testing.assert_allclose(cache.sums(MEMBERS, draws=3, seed=5), by_hand(3, 5), rtol=1e-5)
    assert len(made) == 4
    np.testing.assert_allclose(cache.sums(MEMBERS, draws=2, seed=6), by_hand(2, 6), rtol=1e-5)
    assert len(made) == 6


def test_threads_that_ask_at_once_get_one_answer() -> None:
    cache = RedrawCache(
        lambda generators: [np.sort(rng.normal(size=(3, 40_000)), axis=1)[:, :4] for rng in generators]
    )
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: cache.sums(MEMBERS, draws=6, seed=1), range(8)))
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
    assert len(np.unique(found[0][:, 0])) == 6
