"""The rule: words for comparisons, for criteria and for bounds."""

from __future__ import annotations

import numpy as np
import pytest
from ranks import Rank, pool
from verdicts import (
    AGAINST,
    BETTER,
    NO,
    OPEN,
    PART,
    UNCLEAR,
    UNTESTED,
    WORSE,
    YES,
    Sided,
    by_bound,
    by_criterion,
    by_test,
    readings,
    tally,
    word,
    words_of_many,
)  # fmt: skip

BEST, MIDDLE, WORST = Rank(0, 200, 200), Rank(100, 100, 200), Rank(200, 0, 200)


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ([BEST] * 5, YES),
        ([BEST] * 3 + [MIDDLE] * 2, YES),
        # Better on two of five is no majority.
        ([BEST] * 2 + [MIDDLE] * 3, PART),
        # One significant failure: in part at most.
        ([BEST] * 4 + [WORST], PART),
        ([MIDDLE] * 5, NO),
        ([BEST, WORST, MIDDLE, MIDDLE, MIDDLE], NO),
        ([WORST] + [MIDDLE] * 4, AGAINST),
        ([BEST] + [WORST] * 4, AGAINST),
        ([Rank(0, 24, 24)] * 5, UNTESTED),
        ([pool([Rank(0, 24, 24)] * 5)], YES),
        ([], OPEN),
    ],
)
def test_the_word_follows_from_the_ranks(ranks: list[Rank], expected: str) -> None:
    assert word(ranks) == expected


def test_readings_are_corrected_over_the_claim() -> None:
    second = Rank(1, 199, 200)
    assert readings([second]) == [BETTER]
    assert readings([second, *[MIDDLE] * 4]) == [UNCLEAR] * 5
    assert readings([WORST]) == [WORSE]
    assert readings([Sided(0.04, good=True), Sided(0.03, good=False)]) == [UNCLEAR, UNCLEAR]


def test_many_claims_at_once_get_the_same_words() -> None:
    rng = np.random.default_rng(0)
    places = rng.choice([0, 1, 2, 100, 198, 199, 200], size=(300, 5))
    ranks = [[Rank(int(good), 200 - int(good), 200) for good in row] for row in places]
    p = np.array([[one.p for one in row] for row in ranks])
    good = np.array([[one.good for one in row] for row in ranks])
    expected = [word(row) for row in ranks]
    assert words_of_many(p, good).tolist() == expected
    assert set(expected) == {YES, PART, NO, AGAINST}


def test_every_count_has_one_word() -> None:
    for better in range(6):
        for worse in range(6 - better):
            found = by_test(better, worse, 5)
            assert (found in (YES, PART)) == (better > worse)
            assert (found == AGAINST) == (worse > better)


def test_criteria_and_bounds() -> None:
    assert by_criterion([True, True]) == YES
    assert by_criterion([True, False]) == PART
    assert by_criterion([False]) == NO
    assert by_criterion([]) == by_bound([]) == OPEN
    assert by_bound([0.5, 0.04]) == YES
    assert by_bound([0.5, 0.02]) == AGAINST


def test_tally_shows_wrong_signs() -> None:
    assert tally([BETTER, WORSE, WORSE, UNCLEAR]) == "better on 1 of 4 tasks, worse on 2"
