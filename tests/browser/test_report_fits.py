"""The report measured in a browser: at three widths and on paper nothing overflows and no word is broken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedwise as fw
from browser.browser_kit import BASICS, MEASURE
from fedwise.reporting import Report
from fedwise.search import select
from reporting.report_kit import make_pool, metrics

pytestmark = [pytest.mark.browser, pytest.mark.slow]

NAMES = (
    "Universitätsklinikum Schleswig-Holstein", "Ward 7", "Hospital of Saint John the Evangelist in the Fields",
    "NY", "WA", "Klinik-12",
)  # fmt: skip


@pytest.fixture(scope="module")
def long_names(small_schema: fw.Schema, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with everything in it, of clients with long names and five baselines."""
    pool = make_pool(small_schema, NAMES, rows=800)
    runs = {"Chosen federation": metrics(0.6, 0)}
    runs |= {f"Everyone, reweighted and post-processed, {i}": metrics(0.5, i) for i in range(1, 6)}
    path = tmp_path_factory.mktemp("report") / "report.html"
    Report.of(pool, select(pool, 3, seed=0), runs=runs).save(path)
    return path


@pytest.mark.parametrize(
    ("width", "media"), [(1280, "screen"), (768, "screen"), (390, "screen"), (673, "print")]
)
def test_nothing_overflows_and_no_word_breaks(tab: Any, long_names: Path, width: int, media: str) -> None:
    """673 pixels are the width of A4 within its margins."""
    page = tab.page
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(media=media)
    page.goto(long_names.as_uri())
    page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")
    assert page.evaluate(MEASURE) == []
    charts = page.locator("svg.chart:visible")
    assert charts.count() >= 8
    assert page.locator("svg.chart.narrow:visible").count() == (charts.count() if width == 390 else 0)


def test_the_measure_sees_what_is_wrong(tab: Any) -> None:
    page = tab.page
    page.set_viewport_size({"width": 390, "height": 900})
    page.set_content(
        "<div class='fw'><table><tr><td style='width:3rem;overflow-wrap:anywhere;display:block'>Klinikum</td></tr>"
        "</table><p style='width:900px'>wide</p><div style='width:50px;overflow:hidden;white-space:nowrap'>cut off "
        "text</div></div>"
    )
    found = " ".join(page.evaluate(MEASURE))
    assert "word Klinikum" in found
    assert "page" in found
    assert "clipped" in found


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_basics(tab: Any, long_names: Path, scheme: str) -> None:
    """Names, contrast, order of headings, language: what an audit of a page looks at first."""
    tab.page.emulate_media(color_scheme=scheme)
    tab.page.goto(long_names.as_uri())
    assert tab.page.evaluate(BASICS) == []


def test_the_keyboard_reaches_every_link_and_fold(tab: Any, long_names: Path) -> None:
    page = tab.page
    page.goto(long_names.as_uri())
    wanted = page.locator("a[href], summary").count()
    reached = set()
    for _ in range(wanted + 2):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.outerHTML.slice(0, 80)"))
    assert len([found for found in reached if found.startswith(("<a", "<summary"))]) >= wanted - 1
    fold = page.locator("summary").first
    fold.focus()
    shown = page.evaluate("document.querySelector('details').open")
    page.keyboard.press("Enter")
    assert page.evaluate("document.querySelector('details').open") is not shown
