"""Waves: a stage asked in parts, from the pool as each finds it to the last question."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

import fedwise as fw
from conftest import make_people
from fedwise.errors import FedwiseError, PoolError
from fedwise.owner.shortlisted import Wave
from fedwise.search.waves import eliminate

CLIENTS = tuple("abcdefghij")
CHANCES = np.array([1.0, 0.9, 0.4, 0.3, 0.05, 0.03, 0.02])
EVERYONE = np.ones(7, dtype=bool)


@pytest.fixture(scope="module")
def releases(small_schema: fw.Schema) -> dict[int, dict[str, fw.Release]]:
    plan = fw.plan(small_schema, stages=[0.3, 3.0], epsilon=3.0)
    frames = {name: make_people(1500, ord(name)) for name in CLIENTS}
    return {
        stage: {
            name: fw.release(plan, frame, client=name, simulated=True, seed=3, stage=stage)
            for name, frame in frames.items()
        }
        for stage in (1, 2)
    }


def pool_of(
    releases: dict[int, dict[str, fw.Release]], answered: set[str], kept: fw.Shortlist | None
) -> fw.Pool:
    pool = fw.Pool.of([*releases[1].values(), *(releases[2][name] for name in sorted(answered))])
    pool.shortlist = kept
    return pool


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"size": 6, "waves": 3}, [0, 1]),  # a third of six
        ({"size": 6, "waves": 3, "before": [0, 4]}, [0, 1, 2, 4]),  # four are left, in three waves: two
        ({"size": 6, "before": [0, 4]}, [0, 1, 2, 3, 4, 5]),  # the last wave asks all that are left
        ({"size": 2, "before": [0, 4, 5]}, [0, 4, 5]),  # more were asked than wanted: nobody else
        ({"allowed": 0.1, "waves": 2}, [0, 1]),  # by chance four would be asked
        ({"allowed": 0.1, "waves": 1, "before": [4, 5, 6]}, [0, 1, 2, 3, 4, 5, 6]),
        ({"allowed": 0.1, "most": 3, "before": [4]}, [0, 1, 4]),
    ],
)
def test_each_wave_asks_its_part(given: dict[str, object], expected: list[int]) -> None:
    before = np.isin(np.arange(7), given.pop("before", []))  # type: ignore[arg-type]
    asked = eliminate(CHANCES, EVERYONE, **({"allowed": 0.0} | given), before=before)  # type: ignore[arg-type]
    assert np.flatnonzero(asked).tolist() == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"size": 3}, [1, 4, 6]),  # fewer than the chance needs: most is gained of these
        ({"size": 4}, [0, 1, 4, 6]),  # of equal gains the likelier client
        ({"allowed": 0.1}, [0, 1, 2, 3]),  # the chance decides: the fewest for it
        ({"allowed": 0.1, "most": 3}, [1, 4, 6]),
        ({"allowed": 0.1, "most": 5}, [0, 1, 2, 3]),  # a bound that does not bind
        ({"allowed": 0.1, "size": 4}, [0, 1, 2, 3]),  # as many as the chance needs
        ({"allowed": 0.1, "waves": 2}, [0, 1]),
        ({"allowed": 0.1, "size": 3, "waves": 2}, [4, 6]),
        ({"size": 4, "before": [4], "waves": 3}, [4, 6]),
    ],
)
def test_where_the_chance_cannot_be_kept_gains_decide(given: dict[str, object], expected: list[int]) -> None:
    gains = np.array([0.1, 0.2, 0.1, 0.1, 0.3, 0.0, 0.4])
    before = np.isin(np.arange(7), given.pop("before", []))  # type: ignore[arg-type]
    asked = eliminate(CHANCES, EVERYONE, **({"allowed": 0.0} | given), before=before, gains=gains)  # type: ignore[arg-type]
    assert np.flatnonzero(asked).tolist() == expected


def test_waves_add_up_to_the_number_asked(releases: dict[int, dict[str, fw.Release]]) -> None:
    answered: set[str] = set()
    listed: fw.Shortlist | None = None
    asked: list[tuple[str, ...]] = []
    for number in (1, 2, 3):
        listed = fw.shortlist(pool_of(releases, answered, listed), 3, size=7, waves=3, redraws=10)
        assert listed.wave == Wave(number, 3, listed.added)
        assert listed.complete == (number == 3)
        assert set(listed.clients) == answered | set(listed.added)
        assert not answered & set(listed.added)
        reasons = {one.client: one.reason for one in listed.standings}
        assert all(reasons[name] == "answered in an earlier wave" for name in answered)
        assert all(listed.asks(name) == "earlier" for name in answered)
        asked.append(listed.added)
        answered |= set(listed.added)
    assert [len(part) for part in asked] == [3, 2, 2]
    assert len(answered) == 7
    assert "left out with an estimated chance" in listed.statement  # type: ignore[union-attr]
    with pytest.raises(PoolError, match="the last one; run fedwise select"):
        fw.shortlist(pool_of(releases, answered, listed), 3, size=7, waves=3)


def test_who_did_not_answer_stays_on_the_list_and_is_not_replaced(
    releases: dict[int, dict[str, fw.Release]],
) -> None:
    first = fw.shortlist(pool_of(releases, set(), None), 3, size=6, waves=2, redraws=10)
    silent = first.added[0]
    second = fw.shortlist(
        pool_of(releases, set(first.added) - {silent}, first), 3, size=6, waves=2, redraws=10
    )
    assert silent in second.clients
    assert silent not in second.added
    assert len(second.clients) == 6
    reasons = {one.client: one.reason for one in second.standings}
    assert reasons[silent] == "asked in an earlier wave, no answer so far"
    assert "further waves follow" in first.statement
    assert "further waves" not in second.statement


def test_a_pool_without_some_clients_goes_on_with_its_waves(
    releases: dict[int, dict[str, fw.Release]],
) -> None:
    first = fw.shortlist(pool_of(releases, set(), None), 2, size=4, waves=2, redraws=10, threads=1)
    pool = pool_of(releases, set(first.clients), first)
    gone = next(name for name in CLIENTS if name not in first.clients)
    second = fw.shortlist(pool.without([gone]), 2, size=4, waves=2, redraws=10, threads=1)
    assert isinstance(second.wave, Wave)
    assert second.wave.number == 2
    assert set(first.clients) < set(second.clients)


def test_a_wave_is_written_only_where_there_are_several(
    releases: dict[int, dict[str, fw.Release]], tmp_path: Path
) -> None:
    """A shortlist of one wave is what it was before there were waves; one of several is read back whole."""
    pool = pool_of(releases, set(), None)
    once = fw.shortlist(pool, 3, size=4, redraws=10)
    assert b"wave" not in once.encode()
    assert once.complete
    assert once.added == once.clients
    several = fw.shortlist(pool, 3, size=4, waves=2, redraws=10)
    several.save(tmp_path / "shortlist.json")
    assert fw.Shortlist.load(tmp_path / "shortlist.json") == several
    assert "wave 1 of 2: 2 are asked now" in several.headline
    assert "after this wave" in several.headline
    assert "after this stage" in once.headline
    assert {once.asks(name) for name in once.clients} == {"yes"}
    assert {several.asks(name) for name in several.added} == {"now"}
    assert {several.asks(name) for name in several.out} == {"no"}
    assert str(several).count("asked now") == 1 + 2


def test_a_wave_that_adds_nobody_is_the_last(releases: dict[int, dict[str, fw.Release]]) -> None:
    first = fw.shortlist(pool_of(releases, set(), None), 3, size=4, waves=4, redraws=10)
    alone = msgspec.structs.replace(first, wave=Wave(2, 4, ()))
    assert alone.complete
    assert not first.complete


def test_wrong_waves(releases: dict[int, dict[str, fw.Release]]) -> None:
    pool = pool_of(releases, set(), None)
    for waves in (0, 101, True):
        with pytest.raises(FedwiseError, match="waves must be between 1 and 100"):
            fw.shortlist(pool, 3, waves=waves)
    first = fw.shortlist(pool, 3, size=4, waves=2, redraws=10)
    with pytest.raises(FedwiseError, match=r"waves must be 2, as in the shortlist of wave 1 .* got 4"):
        fw.shortlist(pool_of(releases, set(first.added), first), 3, size=4, waves=4)
    with pytest.raises(PoolError, match=r"keep the last wave's shortlist\.json beside the releases"):
        fw.shortlist(pool_of(releases, set(first.added), None), 3, size=4, waves=2)
