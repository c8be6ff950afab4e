"""What a person reads off the page, and the slider that is moved and timed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_MOVE = """
async ([id, values]) => {
  const slider = document.getElementById(id), stage = document.getElementById("federation");
  const times = [];
  for (const value of values) {
    const start = performance.now();
    slider.value = value;
    slider.dispatchEvent(new Event("input", { bubbles: true }));
    const wanted = Number(stage.dataset.asked);
    await new Promise((resolve) => {
      const watch = new MutationObserver(() => {
        if (Number(stage.dataset.answered) < wanted) return;
        watch.disconnect();
        requestAnimationFrame(resolve);
      });
      watch.observe(stage, { attributes: true, attributeFilter: ["data-answered"] });
    });
    times.push(performance.now() - start);
    await new Promise((resolve) => setTimeout(resolve, 40));
  }
  return times;
}
"""

_ANSWERED = """
(before) => {
  const { asked, answered } = document.getElementById("federation").dataset;
  return Number(asked) > before && asked === answered;
}
"""

_SEARCHED = """
() => {
  const { asked, searched } = document.getElementById("federation").dataset;
  return asked === searched;
}
"""


def federation(page: Any, side: str = "#now") -> list[str]:
    """The clients named in a card."""
    names: list[str] = page.locator(f"{side} .chip > span").all_inner_texts()
    return names


def loss(page: Any, side: str = "#now") -> float:
    """The loss of a card, in full."""
    return float(page.get_attribute(f"{side} output", "data-value"))


@contextmanager
def newest(page: Any) -> Iterator[None]:
    """Do something that asks, then wait for the answer to it: the first to come may be to a question before it."""
    before = int(page.get_attribute("#federation", "data-asked"))
    yield
    page.wait_for_function(_ANSWERED, arg=before)


def until_searched(page: Any) -> None:
    """Wait for the full search of the newest question; an earlier one may have ended before."""
    page.wait_for_function(_SEARCHED, timeout=60_000)


def slide(page: Any, name: str, *values: float) -> list[float]:
    """Move a slider through `values`; milliseconds from each move to the redrawn screen."""
    times: list[float] = page.evaluate(_MOVE, [name, list(values)])
    return times
