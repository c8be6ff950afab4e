"""Splits: deterministic, complete, different for each client."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedwise.data.split import split, split_all
from fedwise.errors import FedwiseError


def numbered(rows: int) -> pl.DataFrame:
    return pl.DataFrame({"row": range(rows)}, schema={"row": pl.Int64})


@given(rows=st.integers(0, 300), test=st.floats(0, 0.99), seed=st.integers(0, 5), client=st.text(max_size=5))
def test_parts_make_the_whole(rows: int, test: float, seed: int, client: str) -> None:
    train, held = split(numbered(rows), test, seed=seed, client=client)
    assert sorted(train["row"].to_list() + held["row"].to_list()) == list(range(rows))
    assert train["row"].is_sorted()
    assert held["row"].is_sorted()
    if rows > 1 and test > 0:
        assert 1 <= held.height <= rows - 1
        assert abs(held.height - rows * test) <= 1
    if test == 0:
        assert held.height == 0


def test_the_split_never_changes() -> None:
    # Pinned: results of old runs stay comparable only while these rows are the ones held out.
    assert split(numbered(20), 0.2, seed=0, client="CA")[1]["row"].to_list() == [2, 9, 11, 16]


def test_seed_and_client_both_matter() -> None:
    def held(seed: int, client: str) -> list[int]:
        return split(numbered(200), seed=seed, client=client)[1]["row"].to_list()

    assert held(0, "CA") == held(0, "CA")
    # Two independent choices of 40 rows in 200 agree with probability below 1e-40.
    assert held(0, "CA") != held(0, "NY")
    assert held(0, "CA") != held(1, "CA")
    assert held(1, "1A") != held(11, "A")


def test_split_all_matches_split() -> None:
    clients = {"CA": numbered(50), "NY": numbered(30)}
    train, test = split_all(clients, 0.3, seed=4)
    assert list(train) == list(test) == ["CA", "NY"]
    for name, frame in clients.items():
        alone = split(frame, 0.3, seed=4, client=name)
        assert train[name].equals(alone[0])
        assert test[name].equals(alone[1])


@pytest.mark.parametrize("share", [-0.1, 1.0, 2.0, float("nan")])
def test_share_outside_its_range(share: float) -> None:
    with pytest.raises(FedwiseError, match="test must be a share"):
        split(numbered(5), share)
