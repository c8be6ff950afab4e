"""The explorer in a real browser: everything a person does with it."""

from __future__ import annotations

import json
import math
import re
import shlex
from typing import Any

import pytest

import fedwise as fw
from browser.browser_kit import federation, loss, newest, slide, until_searched
from fedwise.data import synthetic
from fedwise.explore import Explorer
from fedwise.search.selection import Selection

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def pin(page: Any) -> None:
    """Pin, and wait for the second card.

    Once in many runs the card did not come in two minutes, and why is not known: perhaps the press met a page that was
    still moving. So it is made again; other tests here press once.
    """
    from playwright.sync_api import TimeoutError as NotYet

    for _ in range(4):
        page.click("#pin")
        try:
            page.wait_for_selector("#other:not([hidden])", timeout=30_000)
        except NotYet:
            continue
        return
    raise AssertionError("no second card after four presses")


def test_opens_with_a_federation(tab: Any, explorer: Explorer) -> None:
    page = tab.open(explorer.url)
    assert "20 clients · ε = 1, δ = 1e-5, simulated" in page.inner_text("#about")
    assert len(federation(page)) == 5
    assert page.locator("#map button").count() == 20
    assert page.locator("#map button[data-chosen=true]").count() == 5
    assert page.locator("#clients tbody tr").count() == 20
    page.wait_for_selector("#frontier svg")
    page.wait_for_selector("#terms svg")


def test_exact_counts_are_marked_in_the_header(tab: Any) -> None:
    plan = fw.plan(synthetic.schema(), math.inf)
    frames = synthetic.states(scale=0.01, names=("AK", "AL", "AR", "AZ"))
    pool = fw.Pool.of(fw.release(plan, frame, client=name, no_privacy=True) for name, frame in frames.items())
    with Explorer(pool) as exact:
        page = tab.open(exact.url)
        assert page.inner_text("#about .stamp") == "not private"
        assert "exact counts" in page.inner_text("#label")
        assert "not private" in page.title()
        assert "ε" not in page.inner_text("#about")
        page.goto("about:blank")  # the page must not miss the server it is about to lose


def test_a_slider_changes_loss_federation_map_and_pictures(tab: Any, explorer: Explorer) -> None:
    page = tab.open(explorer.url)
    page.wait_for_selector("#frontier:not(.waiting) svg")
    before = loss(page), federation(page), page.get_attribute("#terms", "aria-label")
    frontier = page.get_attribute("#frontier", "aria-label")
    slide(page, "lam", 0.1)
    slide(page, "alpha", 4)
    assert loss(page) != before[0]
    assert federation(page) != before[1]
    page.wait_for_function("(old) => document.getElementById('terms').ariaLabel !== old", arg=before[2])
    page.wait_for_function("(old) => document.getElementById('frontier').ariaLabel !== old", arg=frontier)
    shown = {
        page.locator(f"#map button[aria-label^='{name}:']").get_attribute("data-chosen")
        for name in federation(page)
    }
    assert shown == {"true"}


def test_a_click_forces_in_keeps_out_and_lets_go(tab: Any, explorer: Explorer) -> None:
    page = tab.open(explorer.url)
    free, best = federation(page), loss(page)
    outsider = next(name for name in ("TX", "FL", "AL", "OK") if name not in free)
    tile = page.locator(f"#map button[aria-label^='{outsider}:']")
    for standing, there in (("forced in", True), ("kept out", False), ("not chosen", False)):
        with newest(page):
            tile.click()
        assert standing in (tile.get_attribute("aria-label") or "")
        assert (outsider in federation(page)) is there
        if there:
            assert loss(page) > best
    assert federation(page) == free
    assert loss(page) == best


def test_the_table_does_the_same(tab: Any, explorer: Explorer) -> None:
    page = tab.open(explorer.url)
    page.fill("#filter", "Tx")
    assert page.locator("#clients tbody tr").count() == 1
    with newest(page):
        page.click("#clients tbody button.client")
    assert "TX" in federation(page)
    assert "TX" in page.inner_text("#forced")
    page.click("#forced button[aria-label='Leave TX to the search']")
    page.wait_for_selector("#forced:empty", state="attached")


def test_two_selections_side_by_side(tab: Any, explorer: Explorer) -> None:
    page = tab.open(explorer.url)
    pinned = federation(page), loss(page)
    pin(page)
    slide(page, "k", 8)
    assert len(federation(page)) == 8
    assert federation(page, "#other") == pinned[0]
    assert loss(page, "#other") == pinned[1]
    shown = page.inner_text("#other .delta").strip().replace("−", "-")
    assert float(shown) == pytest.approx(pinned[1] - loss(page), abs=1.1e-4)
    page.wait_for_function("() => document.getElementById('terms').ariaLabel.includes('Pinned')")
    page.click("#close")
    page.wait_for_selector("#other", state="hidden")


def test_what_if_without_one_client(tab: Any, explorer: Explorer) -> None:
    page = tab.open(explorer.url)
    first = federation(page)[0]
    page.click(f"button[aria-label='What if without {first}?']")
    page.wait_for_selector("#other:not([hidden])")
    assert first not in federation(page, "#other")
    assert loss(page, "#other") > loss(page)
    assert first in federation(page)
    page.get_by_role("button", name="Keep it out", exact=True).click()
    page.wait_for_function(
        "(name) => ![...document.querySelectorAll('#now .chip span')].some((e) => e.textContent === name)",
        arg=first,
    )


def test_reload_keeps_everything(tab: Any, explorer: Explorer) -> None:
    page = tab.open(explorer.url)
    pin(page)
    slide(page, "k", 6)
    slide(page, "beta", 1.5)
    with newest(page):
        page.locator("#map button[aria-label^='TX:']").click()
    seen = federation(page), loss(page), federation(page, "#other"), loss(page, "#other")
    page.reload()
    page.wait_for_selector("#federation[data-answered]")
    page.wait_for_selector("#other:not([hidden])")
    assert (federation(page), loss(page), federation(page, "#other"), loss(page, "#other")) == seen
    assert page.input_value("#k-number") == "6"
    assert float(page.input_value("#beta")) == 1.5


def test_evidence_arrives_when_the_slider_rests(tab: Any, explorer: Explorer) -> None:
    page = tab.open(explorer.url)
    until_searched(page)
    assert "No single swap improves it" in page.inner_text("#now .note")
    assert re.fullmatch(r"\d+%", page.inner_text("#now .chip small >> nth=0"))


def test_forecast_arrives_in_units_people_know(tab: Any, explorer: Explorer) -> None:
    page = tab.open(explorer.url)
    page.wait_for_selector("#now .forecast", timeout=120_000)
    assert "Balanced accuracy" in page.inner_text("#now .forecast")


def test_downloads_are_what_is_on_the_screen(tab: Any, explorer: Explorer, tmp_path: Any) -> None:
    page = tab.open(explorer.url)
    slide(page, "k", 3)
    until_searched(page)
    with page.expect_download(timeout=60_000) as got:
        page.click("#get-selection")
    assert got.value.suggested_filename == "selection.json"
    got.value.save_as(tmp_path / "selection.json")
    selection = Selection.load(tmp_path / "selection.json")
    assert list(selection.clients) == federation(page)
    assert selection.loss == pytest.approx(loss(page), abs=1e-9)
    with page.expect_download(timeout=60_000) as got:
        page.click("#get-report")
    got.value.save_as(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert f'value="{selection.loss!r}"' in text
    line = shlex.split(page.inner_text("#command"))
    assert line[:5] == ["fedwise", "select", "releases/", "-k", "3"]
    assert page.inner_text("#command") in text


def test_impossible_wishes_are_explained(tab: Any, explorer: Explorer) -> None:
    page = tab.open(explorer.url)
    page.fill("#min-records", "999999999")
    page.wait_for_selector("#problem:not([hidden])")
    assert "min_records" in page.inner_text("#problem")
    page.fill("#min-records", "")
    page.wait_for_selector("#problem", state="hidden")


def test_everything_works_from_the_keyboard(tab: Any, explorer: Explorer) -> None:
    page = tab.open(explorer.url)
    before, k = loss(page), int(page.input_value("#k"))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.focus("#k")
    with newest(page):
        page.keyboard.press("ArrowRight")
    assert len(federation(page)) == k + 1
    assert loss(page) != before
    page.focus("#map button[aria-label^='TX:']")
    with newest(page):
        page.keyboard.press("Enter")
    assert "TX" in federation(page)
    # Focus stays on the tile, so that the next press goes on from there.
    assert page.evaluate("document.activeElement.ariaLabel").startswith("TX:")


def test_every_control_has_a_name(tab: Any, explorer: Explorer) -> None:
    page = tab.open(explorer.url)
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, input, a[href]")].filter((e) => {
          const labels = [...(e.labels ?? [])].map((label) => label.textContent).join("");
          return !(e.ariaLabel || e.textContent.trim() || labels);
        }).map((e) => e.outerHTML)"""
    )
    assert nameless == []
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((e) => e.id)")
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_fits_the_screen(tab: Any, explorer: Explorer, width: int, height: int) -> None:
    tab.page.set_viewport_size({"width": width, "height": height})
    page = tab.open(explorer.url)
    page.wait_for_selector("#frontier svg")
    pin(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    small = page.evaluate(
        """() => [...document.querySelectorAll(".controls button, .actions button, .actions a, input[type=range]")]
          .filter((e) => e.offsetParent && e.getBoundingClientRect().height < 24).map((e) => e.outerHTML)"""
    )
    assert small == []


def test_pictures_follow_a_dark_page(tab: Any, explorer: Explorer) -> None:
    page = tab.open(explorer.url)
    page.wait_for_selector("#terms svg")
    page.wait_for_selector("#terms svg path[fill='#0073b3']")
    page.emulate_media(color_scheme="dark")
    page.wait_for_selector("#terms svg path[fill='#59b3e9']")


def test_hash_nonsense_is_harmless(tab: Any, explorer: Explorer) -> None:
    wild = "#k=1e9&alpha=-3&beta=x&in=%E0%A4%A&out=<img src=x onerror=alert(1)>|pin:k=|without:nobody"
    page = tab.open(explorer.url + wild)
    assert len(federation(page)) == 5
    assert page.locator("#federation img").count() == 0


def test_state_reads_as_json(tab: Any, explorer: Explorer) -> None:
    page = tab.open(explorer.url)
    question = page.evaluate("new URL(document.getElementById('get-selection').href).searchParams.get('q')")
    assert json.loads(question)["k"] == 5


def test_a_forecast_stays_with_its_federation(tab: Any, explorer: Explorer) -> None:
    """While a question waits, the answer on the screen keeps its own forecast, not that of the newer question."""
    page = tab.page

    def forecast(route: Any) -> None:
        k = json.loads(route.request.post_data)["k"]
        measure = {"label": f"For {k} clients", "value": 0.5, "low": None, "high": None}
        route.fulfill(json={"measures": [measure]})

    page.route("**/api/forecast*", forecast)
    tab.open(explorer.url)
    page.click("#pin")
    for k in (6, 7):
        slide(page, "k", k)
        page.wait_for_selector(f"#now .forecast >> text=For {k} clients", timeout=60_000)
    page.route("**/api/answer*", lambda route: None)  # the server thinks for ever
    page.focus("#k")
    page.keyboard.press("ArrowLeft")
    page.click("#close")
    assert page.input_value("#k-number") == "6"
    assert len(federation(page)) == 7
    assert page.inner_text("#now .forecast dt") == "For 7 clients"


def test_a_button_rehearses_and_the_result_stays_with_its_federation(tab: Any, explorer: Explorer) -> None:
    page = tab.page
    row = {
        "title": "AUC",
        "metric": "auc",
        "value": 0.75,
        "low": 0.7,
        "high": 0.8,
        "random": 0.7,
        "word": "better",
    }
    found = {"verdict": "Rehearsed beside 8 random federations of 5: better in AUC.", "rows": [row]}
    page.route("**/api/rehearse*", lambda route: route.fulfill(json=found))
    tab.open(explorer.url)
    page.click("#rehearse")
    page.wait_for_selector("#now .rehearsal >> text=random 0.700: better", timeout=60_000)
    assert "better in AUC" in page.inner_text("#now")
    slide(page, "k", 4)
    assert page.locator("#now .rehearsal").count() == 0
    slide(page, "k", 5)
    page.wait_for_selector("#now .rehearsal", timeout=60_000)


def test_a_late_card_does_not_stop_the_full_search(tab: Any, explorer: Explorer) -> None:
    """The second card may be asked for after the full search of the same change; both are answered."""
    page = tab.open(explorer.url)
    pin(page)
    cards, searches = [], []

    def hold_the_card(route: Any) -> None:
        if json.loads(route.request.post_data)["k"] == 5:
            cards.append(route)
        else:
            route.continue_()

    page.route("**/api/answer*", hold_the_card)
    page.route("**/api/search*", lambda route: searches.append(route))
    slide(page, "k", 6)
    with page.expect_request(lambda r: "api/search" in r.url and json.loads(r.post_data)["k"] == 7):
        slide(page, "k", 7)
    assert len(cards) == 1  # that of the first move; that of the second waits for it in the page
    page.unroute("**/api/answer*")
    with page.expect_response(lambda r: "api/answer" in r.url and r.request != cards[0].request):
        cards[0].continue_()
    for route in searches:
        route.continue_()
    until_searched(page)


def test_a_late_card_is_not_shown_under_another_title(tab: Any, explorer: Explorer) -> None:
    """The pinned card is asked for; before it comes, "what if without" takes its place."""
    page = tab.open(explorer.url)
    first = federation(page)[0]
    held: dict[bool, list[Any]] = {False: [], True: []}

    def hold(route: Any) -> None:
        held[first in json.loads(route.request.post_data)["exclude"]].append(route)

    def until(without: bool, count: int) -> list[Any]:
        for _ in range(3000):
            if len(held[without]) >= count:
                return held[without]
            page.wait_for_timeout(10)
        raise AssertionError(f"{count} questions expected, {len(held[without])} asked")

    page.route("**/api/answer*", hold)
    page.click("#pin")
    pinned = until(False, 2)[:]  # one for each card
    page.click(f"button[aria-label='What if without {first}?']")
    for route in pinned:
        route.continue_()
    late = until(True, 1)
    # The card that was pinned has come, or the next would not have been asked for.
    assert page.locator("#other").is_hidden()
    late[0].continue_()
    page.wait_for_selector("#other:not([hidden])")
    assert first not in federation(page, "#other")
