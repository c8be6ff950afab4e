"""From the slider to the screen, measured in the browser."""

from __future__ import annotations

import statistics
from typing import Any

import pytest

import fedwise as fw
from browser.browser_kit import federation, slide
from fedwise.explore import Explorer

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_fifty_clients_answer_within_300_ms(tab: Any, fifty: fw.Pool, record_property: Any) -> None:
    with Explorer(fifty) as explorer:
        page = tab.open(explorer.url)
        page.wait_for_selector("#terms svg")
        slide(page, "alpha", 2.1, 2.2)
        times = slide(page, "alpha", *(2.2 + 0.05 * i for i in range(20))) + slide(page, "k", *range(2, 12))
        page.goto("about:blank")  # the page must not miss the server it is about to lose
    median = statistics.median(times)
    record_property("median_ms", median)
    print(f"\n50 clients: median {median:.0f} ms of {len(times)} moves, worst {max(times):.0f} ms")  # noqa: T201
    assert median < 300


def test_2400_clients_answer_within_1500_ms(tab: Any, districts: fw.Pool, record_property: Any) -> None:
    with Explorer(districts) as explorer:
        page = tab.open(explorer.url)
        page.wait_for_selector("#terms svg")
        assert page.locator("#clients tbody tr").count() == 200
        times = slide(page, "alpha", *(2.1 + 0.1 * i for i in range(9)))
        assert len(federation(page)) == 5
        page.goto("about:blank")  # the page must not miss the server it is about to lose
    median = statistics.median(times)
    record_property("median_ms", median)
    print(f"\n2,400 clients: median {median:.0f} ms of {len(times)} moves, worst {max(times):.0f} ms")  # noqa: T201
    assert median < 1500
