"""The cost plot of the search benchmark: a small SVG, drawn by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

Points = Sequence[tuple[float, float]]

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _GAP = 340, 260, 56, 44, 40


def write_plot(path: Path, by_cells: Points, by_k: Points) -> None:
    """Two panels on logarithmic axes: microseconds a swap against cells, and against k."""
    panels = [
        _panel(0, by_cells, "cells of a row", "grows linearly in cells"),
        _panel(_WIDTH + _GAP, by_k, "clients in the federation (k)", "does not depend on k"),
    ]
    body = "\n".join(panels)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * _WIDTH + _GAP} {_HEIGHT}" '
        f'font-family="sans-serif" font-size="11" role="img" '
        f'aria-label="Cost of one swap evaluation against cells and against federation size">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n',
        encoding="utf-8",
    )


def _panel(x0: float, points: Points, label: str, title: str) -> str:
    xs, ys = [p[0] for p in points], [p[1] for p in points]
    low_x, high_x = math.log(min(xs)), math.log(max(xs))
    low_y, high_y = math.log(min(min(ys) * 0.6, 0.5)), math.log(max(max(ys) * 1.6, 5.0))

    def place(x: float, y: float) -> tuple[float, float]:
        across = (math.log(x) - low_x) / (high_x - low_x)
        up = (math.log(y) - low_y) / (high_y - low_y)
        return x0 + _LEFT + across * (_WIDTH - _LEFT - 16), _HEIGHT - _BOTTOM - up * (_HEIGHT - _BOTTOM - 34)

    parts = [f'<text x="{x0 + _LEFT}" y="18" font-size="13" font-weight="bold">{title}</text>']
    for tick in (0.5, 1, 2, 5, 10, 20, 50):
        if low_y <= math.log(tick) <= high_y:
            left, y = place(min(xs), tick)
            right, _ = place(max(xs), tick)
            parts.append(f'<line x1="{left:.1f}" y1="{y:.1f}" x2="{right:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
            parts.append(f'<text x="{left - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">{tick:g} µs</text>')
    for x in xs:
        at, _ = place(x, ys[0])
        parts.append(f'<text x="{at:.1f}" y="{_HEIGHT - 26}" text-anchor="middle">{x:g}</text>')
    parts.append(
        f'<text x="{x0 + (_LEFT + _WIDTH) / 2}" y="{_HEIGHT - 8}" text-anchor="middle">{label}</text>'
    )
    line = " ".join(f"{a:.1f},{b:.1f}" for a, b in (place(x, y) for x, y in points))
    parts.append(f'<polyline points="{line}" fill="none" stroke="#1f77b4" stroke-width="2"/>')
    parts += [
        f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="#1f77b4"/>'
        for a, b in (place(x, y) for x, y in points)
    ]
    return "\n".join(parts)
