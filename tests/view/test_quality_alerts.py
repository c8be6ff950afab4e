"""Quality where people look: suspects and doubtful members in the report's alerts, seats that stay empty, the log."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

import fedwise as fw
from fedwise.coordinator.summary import summarise
from fedwise.pool.card import MOST_JUDGED, Card, Entry, quick_quality
from fedwise.pool.pool import Pool
from fedwise.view.alerts import noted_by_search, spoilt_records
from fedwise.view.checks import Evidence, examine
from fedwise.view.pool_rows import pool_rows
from search.test_seats import SPOILT, make_pool


def _card(client: str, p: float, *, suspect: bool = False) -> Card:
    entry = Entry("label_noise", "", 0.4, 0.1, 4.0, p, 0.9, suspect, "noise")
    return Card(client, 1000.0, (entry,), "about 40% of the labels look random; z = 4.0")


@pytest.fixture(scope="module")
def pool() -> Pool:
    return make_pool(empty=())


@pytest.fixture(scope="module")
def chosen(pool: Pool) -> fw.Selection:
    return fw.select(pool, 3, include=[SPOILT], evidence="none")


def test_suspect_members_warn_and_others_are_noted(chosen: fw.Selection) -> None:
    member, honest = chosen.clients[0], chosen.clients[1]
    cards = {
        member: _card(member, 1e-9, suspect=True),
        honest: _card(honest, 0.03),
        "elsewhere": _card("elsewhere", 1e-9, suspect=True),
    }
    said = {notice.title: notice.level for notice in spoilt_records(chosen, cards)}
    assert said == {
        f"the records of {member} look spoilt": "warning",
        "the records of elsewhere look spoilt": "note",
        f"quality of {honest} is in doubt": "note",
    }


def test_the_report_asks_about_quality(pool: Pool, chosen: fw.Selection) -> None:
    found = examine(chosen, Evidence(pool=pool))
    assert "whether the records of clients look spoilt" in found.checked
    assert f"the records of {SPOILT} look spoilt" in [notice.title for notice in found.alerts]
    without = examine(chosen, Evidence())
    assert any(
        text.startswith("Whether the records of clients look spoilt: name the") for text in without.unchecked
    )


def test_rows_of_the_explorer_name_suspects(pool: Pool) -> None:
    from fedwise.estimation import estimate

    rows = pool_rows(pool, estimate(pool), np.zeros((len(pool), 4)))
    assert [row.client for row in rows if row.suspect] == [SPOILT]


def test_empty_seats_are_said_in_report_and_log() -> None:
    small = make_pool(spoilt="")
    chosen = fw.select(small, 3, evidence="none")
    assert any(notice.title == "no seat for c04, c09" for notice in noted_by_search(chosen, releases=True))
    text = [line for _, line in summarise(chosen, small)]
    assert any(line.startswith("no seat for c04, c09: the tables hold no more than noise") for line in text)
    assert any(line.startswith("quality: no member is suspect") for line in text)
    spoilt = msgspec.structs.replace(chosen, clients=(SPOILT, "c00", "c01"))
    assert any("look spoilt" in line for _, line in summarise(spoilt, make_pool(empty=())))


def test_large_and_exact_pools_are_not_judged_in_passing() -> None:
    assert quick_quality(make_pool(fw.plan(make_pool().plan.schema, float("inf")))) is None
    few = make_pool()
    many = Pool(
        tuple(f"c{i}" for i in range(MOST_JUDGED + 1)), few.plan,
        np.repeat(few.matrix[:1], MOST_JUDGED + 1, axis=0), simulated=True,
    )  # fmt: skip
    assert quick_quality(many) is None
