"""States: codes agree and every state has a tile of its own."""

from __future__ import annotations

import pytest

from fedwise.data import states
from fedwise.errors import DataError


def test_fifty_states_and_two_more() -> None:
    assert len(states.STATES) == 52
    assert len(states.BY_FIPS) == len(states.BY_USPS) == 52
    assert len(states.FIFTY) == 50
    assert list(states.FIFTY) == sorted(states.FIFTY)


def test_tiles_do_not_overlap() -> None:
    tiles = {(state.row, state.column) for state in states.STATES}
    assert len(tiles) == 52
    assert all(0 <= row < 8 and 0 <= column < 12 for row, column in tiles)


@pytest.mark.parametrize("key", ["CA", "ca", 6, "06", "6", "California", " california "])
def test_find_takes_any_name(key: str | int) -> None:
    assert states.find(key).usps == "CA"


def test_find_says_what_it_knows() -> None:
    with pytest.raises(DataError, match="did you mean 'Wyoming'"):
        states.find("Wyomin")
    with pytest.raises(DataError, match="USPS code such as CA"):
        states.find("XX")
