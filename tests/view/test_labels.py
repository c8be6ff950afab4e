"""Labels: the gravest statement wins, and silence is never called private."""

from __future__ import annotations

import math
from itertools import product

import msgspec
import pytest

import fedwise as fw
from fedwise.pool.pool import Flag, Pool
from fedwise.search.describe import flags_of
from fedwise.search.selection import Selection
from fedwise.view import labels
from fedwise.view.labels import gravest, label_of, marks_of


def as_if(pool: fw.Pool, *, simulated: bool) -> Pool:
    flag = Flag("NY", "its tables contradict one another", 1e-9)
    return Pool(pool.clients, pool.plan, pool.matrix, simulated=simulated, flags=[flag])


def flagged(selection: Selection, *flags: str) -> Selection:
    return msgspec.structs.replace(selection, flags=flags)


def test_gravest_wins_and_silence_is_not_checked() -> None:
    assert gravest([]) == "not checked"
    for first, second in product(labels.ORDER, repeat=2):
        wanted = min(first, second, key=labels.ORDER.index)
        assert gravest([first, second]) == wanted


def test_every_label_has_its_words() -> None:
    for words in (
        labels.RELEASES,
        labels.TRAINING,
        labels.STAMPS,
        labels.TRAINING_STAMPS,
        labels.SOURCES,
    ):
        assert set(words) == set(labels.ORDER)
    for stamps in (labels.STAMPS, labels.TRAINING_STAMPS):
        assert [label for label, stamp in stamps.items() if not stamp] == ["private"]


@pytest.mark.parametrize("simulated", [True, False])
def test_a_selections_mark_and_its_pool(pool: fw.Pool, selection: Selection, simulated: bool) -> None:
    found = as_if(pool, simulated=simulated)
    own = "simulated" if simulated else "private"
    assert label_of(found) == own
    assert label_of(found, flagged(selection)) == own
    assert label_of(found, flagged(selection, "simulated: seeded")) == "simulated"
    assert label_of(found, flagged(selection, "not private: exact")) == "not private"


def test_a_selection_alone(selection: Selection, pool: fw.Pool) -> None:
    assert label_of(None, flagged(selection)) == "not checked"
    assert label_of(None, flagged(selection), plan=pool.plan) == "not checked"
    exact = fw.plan(pool.plan.schema, math.inf)
    assert label_of(None, flagged(selection), plan=exact) == "not private"
    assert label_of(None, flagged(selection, "simulated: seeded")) == "simulated"


@pytest.mark.parametrize(
    "flag",
    [
        "flagged release of 'simulated': its tables contradict one another",
        "limit not kept: not private",
        "simulatedish: something else",
    ],
)
def test_other_flags_are_no_marks(selection: Selection, flag: str) -> None:
    assert marks_of(flagged(selection, flag)) == []


def test_flags_of_a_selection_are_read_back(pool: fw.Pool, selection: Selection) -> None:
    for simulated, marks in ((True, ["simulated"]), (False, [])):
        flags = flags_of(fw.estimate(pool), as_if(pool, simulated=simulated))
        assert marks_of(flagged(selection, *flags)) == marks
        assert "flagged release of 'NY': its tables contradict one another" in flags
