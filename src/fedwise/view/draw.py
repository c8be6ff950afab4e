"""Draw: a Vega-Lite specification as inline SVG that follows the page's colours. Nothing is fetched."""

from __future__ import annotations

import html
import re
from typing import Any

from ..errors import MissingExtra
from .palette import themed

#: Vega-Lite the charts are written for.
VERSION = "6.1"
_ID = re.compile(r'(id="|url\(#|href="#)([A-Za-z_][\w-]*)')
_OPEN = re.compile(r"<svg\b[^>]*>")
_SIZE = re.compile(r'\b(width|height)="([\d.]+)"')


def svg(spec: dict[str, Any], *, name: str) -> str:
    """The picture as an ``<svg>`` element to be put into a page.

    Parameters
    ----------
    spec
        A complete specification; its description becomes the alternative text.
    name
        Unique in the page: identifiers inside the picture are prefixed with it.

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
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{label}" class="chart" '
        f'viewBox="0 0 {size["width"]} {size["height"]}" width="{size["width"]}" height="{size["height"]}">'
    )
    return themed(_OPEN.sub(lambda _: opening, drawn, count=1))
