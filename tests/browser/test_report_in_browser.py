"""The report in a real browser: offline, silent, fitting screen and paper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedwise as fw
from fedwise.reporting import Report
from fedwise.search import select

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def page_file(fifty: fw.Pool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    Report.of(fifty, select(fifty, 5, method="annealing"), frontier=False, forecast=False).save(path)
    return path


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_opens_offline_and_fits(tab: Any, page_file: Path, width: int, scheme: str) -> None:
    asked: list[str] = []
    page = tab.page
    page.on("request", lambda request: asked.append(request.url))
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    page.goto(page_file.as_uri())
    assert asked == [page_file.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("svg.chart").count() >= 5
    ink = page.evaluate("getComputedStyle(document.body).color")
    paper = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    bright = [sum(int(part) for part in colour[4:-1].split(",")) for colour in (ink, paper)]
    assert (bright[0] > bright[1]) is (scheme == "dark")


def test_pictures_take_the_pages_colours(tab: Any, page_file: Path) -> None:
    tab.page.emulate_media(color_scheme="dark")
    tab.page.goto(page_file.as_uri())
    fill = "getComputedStyle(document.querySelector('#clients svg path[fill*=\"--signal\"]')).fill"
    assert tab.page.evaluate(fill) == "rgb(89, 179, 233)"
    tab.page.emulate_media(media="print", color_scheme="dark")
    assert tab.page.evaluate(fill) == "rgb(0, 115, 179)"


def test_prints(tab: Any, page_file: Path) -> None:
    tab.page.goto(page_file.as_uri())
    paper = tab.page.pdf(format="A4")
    assert paper.startswith(b"%PDF")
    assert 2 <= paper.count(b"/Type /Page\n") + paper.count(b"/Type /Page ") <= 30
