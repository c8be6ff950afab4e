"""Palette: every colour of the charts, once for light and once for dark pages.

The hues are those of Okabe and Ito (2008), safe for the colour-blind. Neighbouring colours of a stack also
differ in lightness, so that the charts survive a photocopier.
"""

from __future__ import annotations

import re
from typing import Any

#: Name of a colour: (on a light page, on a dark page). Charts are specified with the light one.
COLOURS: dict[str, tuple[str, str]] = {
    "ink": ("#1b1d22", "#eceef2"),
    "muted": ("#5f6570", "#a3a9b5"),
    "rule": ("#e3e5ea", "#33373f"),
    "page": ("#fffffe", "#15171b"),
    "chosen": ("#0072b2", "#58b2e8"),
    "rest": ("#b9bec8", "#565c68"),
    "direct_bias": ("#d55e00", "#ec7a35"),
    "proxy_bias": ("#e69f00", "#f3ba48"),
    "redundancy": ("#5c5f77", "#9a9db8"),
    "signal": ("#0073b3", "#59b3e9"),
    "good": ("#009e73", "#2fc497"),
    "bad": ("#c44e00", "#f08a4b"),
}

LIGHT = {name: pair[0] for name, pair in COLOURS.items()}

#: Names of the four terms as people read them, in the order they are stacked.
TERM_LABELS = {
    "direct_bias": "Direct bias",
    "proxy_bias": "Proxy bias",
    "redundancy": "Redundancy",
    "signal": "Signal",
}

_FONT = "'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', sans-serif"
_HEX = re.compile("|".join(sorted({pair[0] for pair in COLOURS.values()})), re.IGNORECASE)


def config() -> dict[str, Any]:
    """Vega-Lite configuration shared by all charts: quiet axes, no frame, transparent background."""
    return {
        "background": "transparent",
        "font": _FONT,
        # Room at the left: labels are measured with one font here and drawn with the reader's.
        "padding": {"left": 14, "right": 12, "top": 4, "bottom": 4},
        "view": {"stroke": None},
        "axis": {
            "labelColor": LIGHT["muted"],
            "titleColor": LIGHT["muted"],
            "titleFontWeight": "normal",
            "titleFontSize": 12,
            "labelFontSize": 12,
            "domain": False,
            "ticks": False,
            "gridColor": LIGHT["rule"],
            "labelPadding": 6,
            "labelOverlap": "greedy",
            "labelSeparation": 8,
            "titlePadding": 10,
        },
        "legend": {
            "labelColor": LIGHT["ink"],
            "titleColor": LIGHT["muted"],
            "labelFontSize": 12,
            "symbolSize": 120,
            "symbolOpacity": 1,
            "orient": "top",
            "title": None,
            "offset": 12,
        },
        "header": {"labelColor": LIGHT["ink"], "labelFontSize": 13, "labelFontWeight": 600, "title": None},
        "text": {"color": LIGHT["ink"], "fontSize": 12},
    }


def themed(svg: str) -> str:
    """An SVG whose colours follow the page: each known colour becomes ``var(--name, colour)``."""
    names = {pair[0]: name for name, pair in COLOURS.items()}
    return _HEX.sub(lambda hit: f"var(--{names[hit[0].lower()]}, {hit[0]})", svg)


def css() -> str:
    """The colours as CSS custom properties: light, dark where the reader prefers it, light on paper."""
    light = "".join(f"--{name}:{pair[0]};" for name, pair in COLOURS.items())
    dark = "".join(f"--{name}:{pair[1]};" for name, pair in COLOURS.items())
    return (
        f":root{{color-scheme:light dark;{light}}}\n"
        f"@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"
    )
