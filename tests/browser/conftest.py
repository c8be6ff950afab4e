"""Chromium, and explorers of twenty and of fifty states and of 2,400 districts."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fedwise as fw
from fedwise.data import synthetic
from fedwise.explore import Explorer
from fedwise.pool.pool import Pool

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """The system's Chromium with an empty profile; skipped where it or Playwright is absent.

    For one file at a time: Playwright keeps an event loop running in this thread, where other tests start their own.
    """
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    api = pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")
    with api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def fifty() -> fw.Pool:
    """Fifty synthetic states at epsilon 1, with repeatable noise."""
    plan = fw.plan(synthetic.schema(), 1.0)
    frames = synthetic.states(scale=0.05)
    return fw.Pool.of(
        fw.release(plan, frame, client=name, simulated=True, seed=0) for name, frame in frames.items()
    )


#: A page looks the same over these. Every question also starts a full search, which proves the best five of
#: fifty in seconds and the best five of twenty in a tenth of one.
TWENTY = (
    "AK", "AL", "CA", "CO", "FL", "GA", "HI", "IL", "MA", "MI", "MS", "NM", "NY", "OK", "TX", "UT", "VT", "WA",
    "WV", "WY",
)  # fmt: skip


@pytest.fixture(scope="session")
def twenty(fifty: fw.Pool) -> fw.Pool:
    """Twenty of them."""
    rows = [fifty.clients.index(name) for name in TWENTY]
    return Pool(TWENTY, fifty.plan, fifty.matrix[rows], simulated=True)


@pytest.fixture(scope="session")
def explorer(twenty: fw.Pool) -> Iterator[Explorer]:
    """Their explorer, running."""
    with Explorer(twenty, releases="releases/") as page:
        yield page


@pytest.fixture(scope="session")
def districts(fifty: fw.Pool) -> fw.Pool:
    """2,400 clients drawn from the states' released tables, each with noise of its own."""
    rng = np.random.default_rng(0)
    home = rng.integers(0, len(fifty), 2400)
    share = rng.uniform(0.5, 2.0, (2400, 1))
    counts = rng.poisson(np.maximum(fifty.matrix, 0)[home] * share)
    noise = rng.normal(size=counts.shape) * fifty.plan.layout.per_cell(fifty.plan.sigmas)
    names = [f"District {i:04d}" for i in range(2400)]
    return Pool(names, fifty.plan, counts + np.rint(noise).astype(np.int64), simulated=True)


class Tab:
    """A page that remembers what it complained about."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.complaints: list[str] = []
        page.on("console", lambda message: self._note(message.type, message.text))
        page.on("pageerror", lambda error: self._note("error", str(error)))

    def _note(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(f"{kind}: {text}")

    def open(self, address: str) -> Any:
        """Go there and wait for the first answer."""
        self.page.goto(address)
        self.page.wait_for_selector("#federation[data-answered]")
        return self.page


@pytest.fixture
def tab(chromium: Any) -> Iterator[Tab]:
    """A fresh tab that must not complain."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    # A busy machine is no defect; how fast the page is has tests of its own.
    context.set_default_timeout(120_000)
    made = Tab(context.new_page())
    yield made
    context.close()
    assert made.complaints == []
