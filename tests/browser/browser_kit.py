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


#: What does not fit: the page, an element whose content is wider than itself, a word on two lines. Code may break.
MEASURE = r"""
() => {
  const bad = [];
  if (document.documentElement.scrollWidth > innerWidth) bad.push(`page ${document.documentElement.scrollWidth}`);
  const hidden = (e) => e.closest("thead") && getComputedStyle(e.closest("thead")).position === "absolute";
  for (const e of document.querySelectorAll("body *")) {
    if (e.closest("svg, script, style, .visually-hidden, .skip") || hidden(e) || !e.getClientRects().length) continue;
    const { display, overflowX } = getComputedStyle(e);
    if (display === "inline" || overflowX === "auto" || e.clientWidth === 0) continue;
    if (e.scrollWidth > e.clientWidth + 1) bad.push(`clipped ${e.tagName} ${e.className}: ${e.textContent.slice(0, 40)}`);
  }
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode, host = node.parentElement;
    if (!host.closest("th, td, dd, dt, li, p, h1, h2, h3") || host.closest("svg, code, pre, script, style")) continue;
    if (!host.getClientRects().length || hidden(host)) continue;
    for (const word of node.data.matchAll(/[\p{L}\p{N}.,−+%]+/gu)) {
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const lines = new Set([...range.getClientRects()].filter((box) => box.width > 0).map((box) => Math.round(box.top)));
      if (lines.size > 1) bad.push(`word ${word[0]}`);
    }
  }
  return bad;
}
"""  # noqa: E501

#: What an audit of a page looks at first: names of controls and pictures, language, title, headings, contrast of text.
BASICS = r"""
() => {
  const bad = [];
  if (!document.documentElement.lang) bad.push("no language");
  if (!document.title) bad.push("no title");
  if (!document.querySelector("meta[name=viewport]")) bad.push("no viewport");
  const levels = [...document.querySelectorAll("h1, h2, h3, h4")].map((e) => Number(e.tagName[1]));
  if (levels.filter((level) => level === 1).length !== 1) bad.push("not one h1");
  levels.forEach((level, i) => { if (i && level > levels[i - 1] + 1) bad.push(`heading ${level} after ${levels[i - 1]}`); });
  for (const e of document.querySelectorAll("button, input, select, textarea, a[href], svg[role=img], [role=img]")) {
    const labels = [...(e.labels ?? [])].map((label) => label.textContent).join("");
    if (e.getClientRects().length && !(e.ariaLabel || e.textContent.trim() || labels.trim())) bad.push(`no name: ${e.outerHTML.slice(0, 90)}`);
  }
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  if (new Set(ids).size !== ids.length) bad.push("an id twice");
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const parse = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => { const c = v / 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (e) => {
    for (let at = e; at; at = at.parentElement) {
      const [r, g, b, a] = parse(getComputedStyle(at).backgroundColor);
      if (a === 255) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const seen = new Set();
  for (const e of document.querySelectorAll("body *")) {
    if (e.closest("svg") || !e.getClientRects().length || e.matches(":disabled")) continue;
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
    const style = getComputedStyle(e);
    const [r, g, b] = parse(style.color), behind = ground(e);
    const [x, y] = [light([r, g, b]), light(behind)].sort((p, q) => q - p);
    const ratio = (x + 0.05) / (y + 0.05);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.6 && Number(style.fontWeight) >= 700);
    const note = `contrast ${ratio.toFixed(2)}: ${e.tagName} ${e.className}`;
    if (ratio < (large ? 3 : 4.5) && !seen.has(note)) { seen.add(note); bad.push(note); }
  }
  return bad;
}
"""  # noqa: E501
