"""Alerts about single clients: unusual releases, and a selection that depends on one member."""

from __future__ import annotations

import msgspec
import pytest

import fedwise as fw
from fedwise.pool.pool import Alert, Flag, Pool
from fedwise.search.selection import Contribution, Selection
from fedwise.view.checks import Evidence, examine


def titles(selection: Selection, pool: Pool | None = None) -> dict[str, str]:
    found = examine(selection, Evidence(pool=pool)).alerts
    return {alert.title: alert.level for alert in found}


@pytest.mark.parametrize(
    ("moves", "depends"),
    [
        ((-0.9, -0.05, -0.05), True),
        ((0.05, 0.9, -0.05), True),
        ((-0.7, -0.2, -0.1), False),
        ((-0.9, -0.05), False),
        ((0.0, 0.0, 0.0), False),
        ((None, None, None), False),
    ],
)
def test_a_selection_that_depends_on_one_member_says_so(
    selection: Selection, moves: tuple[float | None, ...], depends: bool
) -> None:
    parts = tuple(Contribution(f"c{i}", move) for i, move in enumerate(moves))
    said = titles(msgspec.structs.replace(selection, contributions=parts))
    who = max(range(len(moves)), key=lambda i: abs(moves[i] or 0.0))
    assert (said.get(f"the selection depends on c{who}") == "note") is depends


def test_unusual_releases_are_a_warning_only_for_members(pool: fw.Pool, selection: Selection) -> None:
    member = selection.clients[0]
    other = next(name for name in pool.clients if name not in selection.clients)
    reason = "its association of AGE and RICH is far stronger than the pool's"
    odd = Pool(
        pool.clients,
        pool.plan,
        pool.matrix,
        flags=[
            Flag(
                other, "its noise is not independent of that of 'NY': one is made from the other", 0.0, "copy"
            )
        ],
        alerts=[Alert(name, reason, 9.0, "association") for name in (member, other)],
    )
    said = titles(selection, odd)
    assert said[f"release of {member} is unusual"] == "warning"
    assert said[f"release of {other} is unusual"] == "note"
    texts = [a.text for a in examine(selection, Evidence(pool=odd)).alerts]
    assert any(text.startswith("Its association of AGE and RICH") for text in texts)
    assert any("'NY'" in text for text in texts)
    assert not any("unusual" in title for title in titles(selection, pool))
