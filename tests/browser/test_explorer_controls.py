"""Controls for every constraint and for the objective, saved selections, and the basics of a page, in a browser."""

from __future__ import annotations

from typing import Any

import pytest

import fedwise as fw
from browser.browser_kit import BASICS, MEASURE, federation, loss, newest, slide
from fedwise.explore import Explorer
from fedwise.pool.pool import Pool

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_groups_costs_and_records_limit_the_federation(tab: Any, explorer: Explorer) -> None:
    page = tab.open(explorer.url)
    free = federation(page)
    page.click("summary >> text=Groups and costs")
    page.fill("#groups", "\n".join(f"{name}, one" for name in free[:3]) + "\nNobody, one")
    assert "Nobody" in page.inner_text("#groups-note")
    with newest(page):
        page.fill("#max-per-group", "1")
    assert len(set(federation(page)) & set(free[:3])) == 1
    assert "--max-per-group 1" in page.inner_text("#command")
    page.fill("#max-per-group", "")
    page.fill("#costs", f"{free[0]}, 10")
    with newest(page):
        page.fill("#budget", "5")
    assert free[0] not in federation(page)
    page.fill("#budget", "")
    records = {
        row["client"]: row["records"]
        for row in page.evaluate("fetch('api/pool').then((r) => r.json())")["clients"]
    }
    with newest(page):
        page.fill("#min-client-records", str(sorted(records.values())[-6]))
    assert min(records[name] for name in federation(page)) >= sorted(records.values())[-6]
    seen = federation(page), loss(page)
    page.reload()
    page.wait_for_selector("#federation[data-answered]")
    assert (federation(page), loss(page)) == seen


def test_a_metric_may_be_the_objective_with_limits_by_attribute(tab: Any, explorer: Explorer) -> None:
    page = tab.open(explorer.url)
    assert page.locator("#limits").is_hidden()
    with newest(page):
        page.select_option("#objective", "auc")
    assert "forecast auc" in page.inner_text("#now .loss dt")
    assert page.locator("#limits input").count() == 2
    assert "SEX" in page.inner_text("#limits")
    with newest(page):
        page.fill("#limit-0", "0.2")
    assert "--maximise auc --subject-to eod:SEX@rate=0.2" in page.inner_text("#command")
    with newest(page):
        page.select_option("#objective", "")
    assert page.inner_text("#now .loss dt") == "Loss"


def test_several_selections_are_saved_side_by_side(tab: Any, explorer: Explorer) -> None:
    page = tab.open(explorer.url)
    first = federation(page)
    page.click("#save")
    for k in (3, 7):
        slide(page, "k", k)
        page.click("#save")
    page.wait_for_function("() => !document.getElementById('saved').textContent.includes('…')")
    assert page.locator("#saved thead th").count() == 3
    assert ", ".join(first) in page.inner_text("#saved")
    page.reload()
    page.wait_for_selector("#federation[data-answered]")
    assert page.locator("#saved thead th").count() == 3
    with newest(page):
        page.click("button[aria-label='Open saved selection 2']")
    assert len(federation(page)) == 3
    page.click("button[aria-label='Remove saved selection 1']")
    assert page.locator("#saved thead th").count() == 2


def test_no_map_is_promised_where_there_is_none(tab: Any, twenty: fw.Pool, explorer: Explorer) -> None:
    page = tab.open(explorer.url)
    assert "on the map or in the table" in page.inner_text("#hint")
    renamed = Pool([f"Ward {i}" for i in range(8)], twenty.plan, twenty.matrix[:8], simulated=True)
    with Explorer(renamed) as wards:
        tab.open(wards.url)
        assert "Click a client in the table" in page.inner_text("#hint")
        assert "map" not in page.inner_text("#hint")
        page.goto("about:blank")


@pytest.mark.parametrize("width", [1280, 768, 390])
def test_basics_and_room(tab: Any, explorer: Explorer, width: int) -> None:
    tab.page.set_viewport_size({"width": width, "height": 900})
    page = tab.open(explorer.url)
    page.click("summary >> text=Groups and costs")
    page.click("#save")
    page.wait_for_selector("#frontier svg")
    assert page.evaluate(BASICS) == []
    assert [
        found for found in page.evaluate(MEASURE) if "glance" not in found and "button" not in found.lower()
    ] == []


def test_doubt_about_records_is_a_column(tab: Any, explorer: Explorer) -> None:
    page = tab.open(explorer.url)
    assert "Doubt" in page.inner_text("#clients thead")
    with newest(page):
        page.check("#exclude-suspect")
    assert "--exclude-suspect" in page.inner_text("#command")
