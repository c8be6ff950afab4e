"""State: the clients of the census tasks. USPS code, FIPS code, name, region, and a place on a tile map."""

from __future__ import annotations

from typing import NamedTuple

from ..errors import DataError, nearest


class State(NamedTuple):
    """One state, the District of Columbia or Puerto Rico.

    `row` and `column` place it on a tile map of the United States (12 columns, 8 rows, both from 0),
    where each state is one square and neighbours mostly stay neighbours.
    """

    usps: str
    fips: int
    name: str
    region: str
    row: int
    column: int


STATES: tuple[State, ...] = (
    State("AL", 1, "Alabama", "South", 6, 7),
    State("AK", 2, "Alaska", "West", 0, 0),
    State("AZ", 4, "Arizona", "West", 5, 2),
    State("AR", 5, "Arkansas", "South", 5, 5),
    State("CA", 6, "California", "West", 4, 1),
    State("CO", 8, "Colorado", "West", 4, 3),
    State("CT", 9, "Connecticut", "Northeast", 3, 10),
    State("DE", 10, "Delaware", "South", 4, 10),
    State("DC", 11, "District of Columbia", "South", 5, 9),
    State("FL", 12, "Florida", "South", 7, 9),
    State("GA", 13, "Georgia", "South", 6, 8),
    State("HI", 15, "Hawaii", "West", 7, 0),
    State("ID", 16, "Idaho", "West", 2, 2),
    State("IL", 17, "Illinois", "Midwest", 2, 6),
    State("IN", 18, "Indiana", "Midwest", 3, 6),
    State("IA", 19, "Iowa", "Midwest", 3, 5),
    State("KS", 20, "Kansas", "Midwest", 5, 4),
    State("KY", 21, "Kentucky", "South", 4, 6),
    State("LA", 22, "Louisiana", "South", 6, 5),
    State("ME", 23, "Maine", "Northeast", 0, 11),
    State("MD", 24, "Maryland", "South", 4, 9),
    State("MA", 25, "Massachusetts", "Northeast", 2, 10),
    State("MI", 26, "Michigan", "Midwest", 2, 7),
    State("MN", 27, "Minnesota", "Midwest", 2, 5),
    State("MS", 28, "Mississippi", "South", 6, 6),
    State("MO", 29, "Missouri", "Midwest", 4, 5),
    State("MT", 30, "Montana", "West", 2, 3),
    State("NE", 31, "Nebraska", "Midwest", 4, 4),
    State("NV", 32, "Nevada", "West", 3, 2),
    State("NH", 33, "New Hampshire", "Northeast", 1, 11),
    State("NJ", 34, "New Jersey", "Northeast", 3, 9),
    State("NM", 35, "New Mexico", "West", 5, 3),
    State("NY", 36, "New York", "Northeast", 2, 9),
    State("NC", 37, "North Carolina", "South", 5, 7),
    State("ND", 38, "North Dakota", "Midwest", 2, 4),
    State("OH", 39, "Ohio", "Midwest", 3, 7),
    State("OK", 40, "Oklahoma", "South", 6, 4),
    State("OR", 41, "Oregon", "West", 3, 1),
    State("PA", 42, "Pennsylvania", "Northeast", 3, 8),
    State("RI", 44, "Rhode Island", "Northeast", 3, 11),
    State("SC", 45, "South Carolina", "South", 5, 8),
    State("SD", 46, "South Dakota", "Midwest", 3, 4),
    State("TN", 47, "Tennessee", "South", 5, 6),
    State("TX", 48, "Texas", "South", 7, 4),
    State("UT", 49, "Utah", "West", 4, 2),
    State("VT", 50, "Vermont", "Northeast", 1, 10),
    State("VA", 51, "Virginia", "South", 4, 8),
    State("WA", 53, "Washington", "West", 2, 1),
    State("WV", 54, "West Virginia", "South", 4, 7),
    State("WI", 55, "Wisconsin", "Midwest", 1, 6),
    State("WY", 56, "Wyoming", "West", 3, 3),
    State("PR", 72, "Puerto Rico", "Territory", 7, 11),
)

#: Every state by its USPS code.
BY_USPS: dict[str, State] = {state.usps: state for state in STATES}
#: Every state by its FIPS code.
BY_FIPS: dict[int, State] = {state.fips: state for state in STATES}
#: USPS codes of the 50 states, in alphabetical order: the clients of the paper.
FIFTY: tuple[str, ...] = tuple(sorted(set(BY_USPS) - {"DC", "PR"}))


def find(key: str | int) -> State:
    """The state called by its USPS code, FIPS code (``6`` or ``"06"``) or name, in any case.

    Raises
    ------
    DataError
        No such state; the message suggests the nearest.
    """
    text = str(key).strip()
    if text.isdecimal() and int(text) in BY_FIPS:
        return BY_FIPS[int(text)]
    if text.upper() in BY_USPS:
        return BY_USPS[text.upper()]
    for state in STATES:
        if state.name.lower() == text.lower():
            return state
    # Two letters are close to nearly every code, so a suggestion only helps for names.
    hint = nearest(text, [s.name for s in STATES]) if len(text) > 2 else "; use a USPS code such as CA"
    raise DataError(f"state must be a USPS code, FIPS code or name, got '{text[:40]}'{hint}")
