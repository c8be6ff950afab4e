"""Map: the United States as tiles, where the clients are states."""

from __future__ import annotations

from collections.abc import Sequence

from .charts import Spec, base
from .palette import LIGHT
from .values import Tile


def tile_map(tiles: Sequence[Tile]) -> Spec:
    """Members filled, candidates light, states without a release outlined; every tile carries its code."""
    values = [
        {"code": t.code, "name": t.name, "row": t.row, "column": t.column, "status": t.status} for t in tiles
    ]

    def line(field: str, count: int) -> Spec:
        return {"field": field, "type": "ordinal", "axis": None, "scale": {"domain": list(range(count))}}

    def by_status(chosen: str, rest: str, absent: str) -> Spec:
        scale = {"domain": ["chosen", "rest", "absent"], "range": [chosen, rest, absent]}
        return {"field": "status", "type": "nominal", "legend": None, "scale": scale}

    place = {
        "x": line("column", max(t.column for t in tiles) + 1),
        "y": line("row", max(t.row for t in tiles) + 1),
    }
    square = {
        "mark": {"type": "rect", "cornerRadius": 5, "strokeWidth": 1.5, "width": 38, "height": 38},
        "encoding": {
            **place,
            "color": by_status(LIGHT["chosen"], LIGHT["rule"], "transparent"),
            "stroke": by_status(LIGHT["chosen"], LIGHT["rule"], LIGHT["rule"]),
        },
    }
    code = {
        "mark": {"type": "text", "baseline": "middle"},
        "encoding": {
            **place,
            "text": {"field": "code"},
            "color": by_status(LIGHT["page"], LIGHT["ink"], LIGHT["rest"]),
        },
    }
    chosen = ", ".join(t.name for t in tiles if t.status == "chosen") or "none"
    return base(
        f"Tile map of the United States. Chosen: {chosen}.",
        data={"name": "rows", "values": values},
        width={"step": 42},
        height={"step": 42},
        layer=[square, code],
        resolve={"scale": {"color": "independent"}},
    )
