"""Draw: a Vega-Lite specification as inline SVG that follows the page's colours. Nothing is fetched."""

from __future__ import annotations

import html
import json
import re
import textwrap
from typing import Any

from ..errors import MissingExtra
from .palette import themed

#: Vega-Lite the charts are written for.
VERSION = "6.1"
_ID = re.compile(r'(id="|url\(#|href="#)([A-Za-z_][\w-]*)')
_OPEN = re.compile(r"<svg\b[^>]*>")
_SIZE = re.compile(r'\b(width|height)="([\d.]+)"')


#: Width of a chart on a phone, in pixels, labels included; and the widest that is drawn once for all screens.
NARROW = 340
_WIDE = 420


def both_widths(spec: dict[str, Any], *, name: str) -> str:
    """The picture twice, for a screen and for a phone; the page's style shows the one that fits."""
    wide, small = whole_names(spec, 28), whole_names(narrow(spec), 17)
    return svg(wide, name=name, style="wide") + svg(small, name=f"{name}-narrow", style="narrow")


def whole_names(spec: dict[str, Any], most: int) -> dict[str, Any]:
    """The chart with long names on several lines of at most `most` characters, none of them cut short."""
    return _wrapped(spec, most)[0]  # type: ignore[no-any-return]


def _wrapped(part: Any, most: int) -> tuple[Any, int]:
    """A part of the specification with its names on several lines, and the most lines that a name takes."""
    if isinstance(part, list):
        pairs = [_wrapped(item, most) for item in part]
        return [item for item, _ in pairs], max((lines for _, lines in pairs), default=1)
    if not isinstance(part, dict):
        return part, 1
    found, lines = {}, 1
    for key, value in part.items():
        found[key], deep = (value, 1) if key == "data" else _wrapped(value, most)
        lines = max(lines, deep)
    axis, order = found.get("axis"), found.get("sort")
    if isinstance(axis, dict) and "labelLimit" in axis and isinstance(order, list):
        split = {name: textwrap.wrap(name, most) or [name] for name in order if isinstance(name, str)}
        lines = max([lines, *(len(pieces) for pieces in split.values())])
        if lines > 1:
            table = json.dumps({name: pieces for name, pieces in split.items() if len(pieces) > 1})
            found["axis"] = {
                **axis, "labelExpr": f"({table})[datum.value] || datum.label", "labelLimit": 0, "labelLineHeight": 13,
            }  # fmt: skip
    if isinstance(found.get("height"), dict) and "step" in found["height"]:
        found["height"] = {"step": max(found["height"]["step"], 13 * lines + 5 if lines > 1 else 0)}
    return found, lines


def narrow(spec: dict[str, Any]) -> dict[str, Any]:
    """The same chart for a phone: narrower, panels below each other, long names cut shorter."""
    found = _narrowed(spec)
    config = {**found.get("config", {})}
    config["legend"] = {**config.get("legend", {}), "columns": 2, "labelLimit": 130}
    config["axis"] = {**config.get("axis", {}), "labelFontSize": 11, "titleFontSize": 11, "titleLimit": 250}
    config["axisX"] = {"tickCount": 4}
    return {**found, "config": config}


def _narrowed(part: Any) -> Any:
    if isinstance(part, list):
        return [_narrowed(item) for item in part]
    if not isinstance(part, dict):
        return part
    found = {key: _narrowed(value) for key, value in part.items() if key != "data"}
    if "data" in part:
        found["data"] = part["data"]
    width = found.get("width")
    if isinstance(width, int | float) and width > _WIDE / 2 and "type" not in found:
        # What the wide chart leaves for names at the left stays, up to a third of the narrow one.
        found["width"] = max(150, NARROW - min(130, max(70, 690 - int(width))))
    if width == {"step": 42}:  # the tile map
        found["width"] = found["height"] = {"step": 27}
    if found.get("type") == "rect" and found.get("width") == 38:
        found["width"] = found["height"] = 24
    if isinstance(found.get("labelLimit"), int) and found["labelLimit"] > 110:
        found["labelLimit"] = 110
    if isinstance(found.get("facet"), dict) and "column" in found["facet"]:
        found["facet"] = {
            "row": {
                **found["facet"]["column"],
                "header": {"title": None, "orient": "top", "labelAnchor": "start"},
            }
        }
        found["spec"] = {**found["spec"], "width": NARROW - 110}
    if isinstance(found.get("legend"), dict):
        found["legend"] = {**found["legend"], "columns": 1 if "labelLimit" in found["legend"] else 2}
    return found


def svg(spec: dict[str, Any], *, name: str, style: str = "") -> str:
    """The picture as an ``<svg>`` element to be put into a page.

    Parameters
    ----------
    spec
        A complete specification; its description becomes the alternative text.
    name
        Unique in the page: identifiers inside the picture are prefixed with it.
    style
        A further class of the element.

    Raises
    ------
    MissingExtra
        ``vl-convert-python`` is not installed.
    """
    try:
        import vl_convert
    except ImportError:
        raise MissingExtra("drawing charts", "explore") from None
    drawn: str = vl_convert.vegalite_to_svg(spec, vl_version=VERSION)
    # Several pictures share one page, and Vega numbers its clip paths from zero in each.
    drawn = _ID.sub(lambda hit: f"{hit[1]}{name}-{hit[2]}", drawn)
    size = dict(_SIZE.findall(_OPEN.search(drawn)[0]))  # type: ignore[index]
    label = html.escape(str(spec.get("description", "")), quote=True)
    kind = f"chart {style}".strip()
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{label}" class="{kind}" '
        f'viewBox="0 0 {size["width"]} {size["height"]}" width="{size["width"]}" height="{size["height"]}">'
    )
    return themed(_OPEN.sub(lambda _: opening, drawn, count=1))
