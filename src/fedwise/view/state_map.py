"""State map: the United States as tiles, where the clients are states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from ..data.states import BY_USPS, FIFTY, State
from .charts import Spec, base
from .palette import LIGHT

_NAMES = {state.name.lower(): state for state in BY_USPS.values()}


class Tile(msgspec.Struct, frozen=True, kw_only=True):
    """One state on the tile map."""

    client: str
    code: str
    name: str
    row: int
    column: int
    status: Literal["chosen", "rest", "absent"]


def place(client: str) -> State | None:
    """The state a client is named after (``CA``, ``California``), if any."""
    return BY_USPS.get(client.upper()) or _NAMES.get(client.lower())


def tiles(candidates: Sequence[str], chosen: Sequence[str]) -> list[Tile]:
    """A tile for each state where the clients are states, else nothing."""
    places = {name: place(name) for name in candidates}
    if len(candidates) < 3 or any(found is None for found in places.values()):
        return []
    by_code = {found.usps: name for name, found in places.items() if found is not None}
    shown = [BY_USPS[code] for code in sorted({*FIFTY, *by_code})]
    members = set(chosen)
    return [
        Tile(
            client=by_code.get(state.usps, ""),
            code=state.usps,
            name=state.name,
            row=state.row,
            column=state.column,
            status="absent"
            if state.usps not in by_code
            else "chosen"
            if by_code[state.usps] in members
            else "rest",
        )
        for state in shown
    ]


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
