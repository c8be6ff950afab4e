"""Alerts: each says what is wrong, and none is raised without cause."""

from __future__ import annotations

import msgspec
import pytest

import fedwise as fw
from fedwise.pool.pool import Flag, Pool
from fedwise.reporting import Report
from fedwise.search import select
from fedwise.search.selection import Selection
from fedwise.view.alerts import Notice
from fedwise.view.checks import Evidence, examine
from fedwise.view.outcomes import outcome_of
from fedwise.view.tables import AuditRow
from reporting.report_kit import make_pool, metrics


def raised(selection: Selection, pool: fw.Pool) -> list[Notice]:
    return Report.of(pool, selection, frontier=False).values.alerts


def real(pool: fw.Pool, **changes: object) -> Pool:
    """The same pool as if its noise were real."""
    return Pool(pool.clients, pool.plan, pool.matrix, simulated=False, **changes)  # type: ignore[arg-type]


def test_simulated_noise_stops_the_reader(pool: fw.Pool, selection: Selection) -> None:
    first = raised(selection, pool)[0]
    assert (first.level, first.title) == ("stop", "simulated noise")


def test_a_sound_selection_of_large_clients_raises_none(small_schema: fw.Schema) -> None:
    pool = real(make_pool(small_schema, ("a", "b", "c", "d"), rows=40_000))
    sound = select(pool, 2, evidence="none")
    assert raised(sound, pool) == []


def test_flagged_releases_are_listed(pool: fw.Pool, selection: Selection) -> None:
    flagged = real(pool, flags=[Flag("NY", "its tables contradict one another beyond their noise", 1e-9)])
    found = [alert for alert in raised(selection, flagged) if "flagged" in alert.title]
    assert [alert.title for alert in found] == ["release of NY is flagged"]


def test_weak_promise_is_called_weak(small_schema: fw.Schema) -> None:
    pool = real(make_pool(small_schema, ("a", "b", "c"), epsilon=8.0, rows=20_000))
    titles = [alert.title for alert in raised(select(pool, 2, evidence="none"), pool)]
    assert "weak promise, ε = 8" in titles


def test_tiny_clients_are_named(small_schema: fw.Schema) -> None:
    # The first client has 10 records, the others 210 and more: enough for most of these small tables.
    pool = real(make_pool(small_schema, ("tiny", "b", "c"), rows=10))
    for exclude, level in (("b", "warning"), ("tiny", "note")):
        chosen = select(pool, 2, exclude=[exclude], evidence="none")
        small = next(alert for alert in raised(chosen, pool) if "small for this noise" in alert.title)
        assert small.title == "1 client is small for this noise"
        assert small.level == level
        assert "tables: tiny." in small.text


def test_members_chosen_by_luck_are_named(pool: fw.Pool, selection: Selection) -> None:
    doubtful = msgspec.structs.replace(selection, frequency={selection.clients[0]: 1.0}, redraws=20)
    alert = next(a for a in raised(doubtful, real(pool)) if "could be others" in a.title)
    assert alert.title.startswith(f"{selection.k - 1} of {selection.k}")


def test_another_plan_or_other_numbers_are_noticed(pool: fw.Pool, selection: Selection) -> None:
    other = msgspec.structs.replace(selection, plan_digest="0" * 64)
    assert any("another plan" in alert.title for alert in raised(other, real(pool)))
    shifted = msgspec.structs.replace(selection, loss=selection.loss + 0.01)
    assert any("another loss" in alert.title for alert in raised(shifted, real(pool)))
    assert not any("another" in alert.title for alert in raised(selection, real(pool)))


@pytest.mark.parametrize("ok", [True, False])
def test_a_broken_audit_stops_the_reader(selection: Selection, ok: bool) -> None:
    attack = AuditRow(
        epsilon=1.0, attack="joint", trials=100, auc=0.9, auc_std_error=0.01, auc_theory=0.56, tpr_at_1_percent=0.5,
        tpr_theory=0.01, epsilon_lower_bound=2.0, ok=ok,
    )  # fmt: skip
    found = examine(selection, Evidence(audits=[attack])).alerts
    assert any("beats the promise" in a.title and a.level == "stop" for a in found) is not ok


def test_a_better_baseline_is_admitted(selection: Selection) -> None:
    lost = outcome_of({"Chosen": metrics(0.5, 0), "Everyone": metrics(0.7, 1)})
    titles = [a.title for a in examine(selection, Evidence(training=lost)).alerts]
    assert "a baseline has the better balanced accuracy" in titles
    won = outcome_of({"Chosen": metrics(0.7, 0), "Everyone": metrics(0.5, 1)})
    titles = [a.title for a in examine(selection, Evidence(training=won)).alerts]
    assert "a baseline has the better balanced accuracy" not in titles
