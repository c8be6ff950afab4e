"""Cache: an answer is made once, and a full cache still answers."""

from __future__ import annotations

from fedwise.cache import Cache


def test_an_answer_is_made_once() -> None:
    made: list[str] = []

    def make() -> str:
        made.append("x")
        return "answer"

    cache: Cache[int, str] = Cache()
    assert [cache.get(1, make), cache.get(1, make), cache.get(2, make)] == ["answer"] * 3
    assert len(made) == len(cache) == 2


def test_what_is_none_is_known_too() -> None:
    made: list[int] = []
    cache: Cache[int, None] = Cache()
    for _ in range(2):
        assert cache.get(1, lambda: made.append(1)) is None
    assert made == [1]


def test_a_full_cache_keeps_what_it_has() -> None:
    cache: Cache[int, list[int]] = Cache(most=2)
    first = [cache.get(key, lambda key=key: [key]) for key in range(4)]
    assert first == [[0], [1], [2], [3]]
    assert len(cache) == 2
    assert cache.get(0, lambda: [9]) is first[0]
    assert cache.get(3, lambda: [9]) == [9]


def test_what_is_not_worth_keeping_is_made_again() -> None:
    cache: Cache[int, int] = Cache()
    assert cache.get(1, lambda: 1, keep=False) == 1
    assert cache.get(1, lambda: 2) == 2
