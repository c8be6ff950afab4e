"""What a person reads off the page, and the slider that is moved and timed."""

from __future__ import annotations

from typing import Any

_MOVE = """
async ([id, values]) => {
  const slider = document.getElementById(id), stage = document.getElementById("federation");
  const times = [];
  for (const value of values) {
    const wanted = Number(stage.dataset.answered) + 1;
    const start = performance.now();
    slider.value = value;
    slider.dispatchEvent(new Event("input", { bubbles: true }));
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


def federation(page: Any, side: str = "#now") -> list[str]:
    """The clients named in a card."""
    names: list[str] = page.locator(f"{side} .chip > span").all_inner_texts()
    return names


def loss(page: Any, side: str = "#now") -> float:
    """The loss of a card, in full."""
    return float(page.get_attribute(f"{side} output", "data-value"))


def answered(page: Any) -> int:
    """Number of the last question answered."""
    return int(page.get_attribute("#federation", "data-answered"))


def slide(page: Any, name: str, *values: float) -> list[float]:
    """Move a slider through `values`; milliseconds from each move to the redrawn screen."""
    times: list[float] = page.evaluate(_MOVE, [name, list(values)])
    return times
