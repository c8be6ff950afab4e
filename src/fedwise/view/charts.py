"""Charts: plain values in, Vega-Lite specifications out. The report, a notebook and the explorer draw these.

Every function returns a complete specification as a dict. Its description is the alternative text.
Colours come from `palette` in their light form. What colour says, position, label or dash says too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..objective.pfl import TERM_NAMES, Terms, Weights
from .palette import LIGHT, TERM_LABELS, config
from .tables import ClientRow, GroupRow, SizeRow

Spec = dict[str, Any]

_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
#: Width of a chart with its labels, in pixels.
WIDTH = 690
#: Term labels with the colour each is drawn in.
_TERM_SCALE = {
    "domain": [TERM_LABELS[name] for name in TERM_NAMES],
    "range": [LIGHT[name] for name in TERM_NAMES],
}


def base(description: str, **parts: Any) -> Spec:
    return {"$schema": _SCHEMA, "description": description, "config": config(), **parts}


def weighted(terms: Terms, weights: Weights) -> dict[str, float]:
    """What each term adds to the loss; signal takes away."""
    return {
        "direct_bias": weights.alpha * terms.direct_bias,
        "proxy_bias": weights.beta * terms.proxy_bias,
        "redundancy": weights.gamma * terms.redundancy,
        "signal": -weights.lam * terms.signal,
    }


def _stacked(rows: Sequence[tuple[str, str, Terms, float]], weights: Weights) -> list[dict[str, Any]]:
    out = []
    for name, side, terms, loss in rows:
        for order, (term, value) in enumerate(weighted(terms, weights).items()):
            out.append(
                {
                    "name": name,
                    "side": side,
                    "term": TERM_LABELS[term],
                    "order": order,
                    "value": value,
                    "loss": loss,
                }
            )
    return out


def names(field: str, order: Sequence[str], *, limit: int = 180) -> Spec:
    """A vertical axis of names in a given order, none left out."""
    axis = {"labelColor": LIGHT["ink"], "labelLimit": limit, "labelOverlap": False}
    return {"field": field, "type": "nominal", "sort": list(order), "title": None, "axis": axis}


def quantity(field: str, title: str | None = None, **parts: Any) -> Spec:
    """A numeric position."""
    return {"field": field, "type": "quantitative", **({"title": title} if title else {}), **parts}


def _bars(order: Sequence[str], *, height: int) -> list[Spec]:
    """Stacked terms to the right, signal to the left, and a tick where they balance: the loss."""
    tooltip = [{"field": "name"}, {"field": "term"}, {"field": "value", "format": ".4f"}]
    stack = {
        "mark": {"type": "bar", "stroke": LIGHT["page"], "strokeWidth": 1, "height": {"band": 0.78}},
        "encoding": {
            "y": names("name", order),
            "x": quantity("value", "bits, weighted", axis={"format": "~g", "tickCount": 8}),
            "color": {"field": "term", "type": "nominal", "scale": _TERM_SCALE},
            "order": quantity("order"),
            "tooltip": tooltip,
        },
    }
    net = {
        "mark": {"type": "tick", "color": LIGHT["ink"], "thickness": 3, "height": height},
        "encoding": {"y": names("name", order), "x": quantity("loss", aggregate="min")},
    }
    return [stack, net]


def groups(found: Sequence[GroupRow], weights: Weights) -> Spec:
    """The chosen federation's terms against random federations and the whole pool."""
    told = "; ".join(f"{group.name} {group.loss:.4f}" for group in found)
    return base(
        f"Stacked bars of the four weighted terms. Loss: {told}.",
        data={"name": "rows", "values": _stacked([(g.name, "", g.terms, g.loss) for g in found], weights)},
        width=WIDTH - 150,
        height={"step": 44},
        layer=_bars([group.name for group in found], height=34),
    )


def clients(rows: Sequence[ClientRow], weights: Weights, *, limit: int = 60) -> Spec:
    """Each client's own terms, members above the rest; at most `limit` outsiders, best first."""
    members = sorted((row for row in rows if row.chosen), key=lambda row: row.loss)
    others = sorted((row for row in rows if not row.chosen), key=lambda row: row.loss)[:limit]
    data: list[dict[str, Any]] = []
    panels: list[Spec] = []
    for title, side in (("Chosen", members), ("Not chosen", others)):
        if not side:
            continue
        data += _stacked([(row.client, title, row.terms, row.loss) for row in side], weights)
        panels.append(
            {
                "title": {
                    "text": title,
                    "anchor": "start",
                    "fontSize": 13,
                    "color": LIGHT["ink"],
                    "offset": 8,
                },
                "width": WIDTH - 100,
                "height": {"step": 16},
                "transform": [{"filter": {"field": "side", "equal": title}}],
                "layer": _bars([row.client for row in side], height=13),
            }
        )
    return base(
        f"Stacked bars of the four weighted terms of each client on its own: {len(members)} chosen, "
        f"{len(others)} others, lowest loss first.",
        data={"name": "rows", "values": data},
        vconcat=panels,
        resolve={"scale": {"x": "shared"}},
        spacing=24,
    )


def frontier(points: Sequence[SizeRow]) -> Spec:
    """Best loss of every size, the chosen size marked and labelled."""
    x = quantity(
        "k",
        "clients in the federation, k",
        axis={"tickMinStep": 1, "grid": False},
        scale={"zero": False, "nice": False, "padding": 14},
    )
    at = {"x": x, "y": quantity("loss", "lowest loss", scale={"zero": False})}
    dot = {"type": "point", "filled": True, "opacity": 1}
    chosen = {"filter": "datum.chosen"}
    ring = {**dot, "size": 190, "color": LIGHT["chosen"], "stroke": LIGHT["page"], "strokeWidth": 2}
    label = {"type": "text", "dy": -18, "fontWeight": 600, "color": LIGHT["chosen"]}
    told = ", ".join(f"k={p.k}: {p.loss:.4f}" for p in points)
    return base(
        f"Line of the lowest loss found for each size. {told}.",
        data={"name": "rows", "values": [{"k": p.k, "loss": p.loss, "chosen": p.chosen} for p in points]},
        width=WIDTH - 60,
        height=220,
        layer=[
            {"mark": {"type": "line", "color": LIGHT["rest"], "strokeWidth": 2}, "encoding": at},
            {
                "mark": {**dot, "size": 60, "color": LIGHT["muted"]},
                "encoding": {**at, "tooltip": [{"field": "k"}, {"field": "loss", "format": ".4f"}]},
            },
            {"transform": [chosen], "mark": ring, "encoding": at},
            {
                "transform": [chosen, {"calculate": "'k = ' + datum.k", "as": "label"}],
                "mark": label,
                "encoding": {**at, "text": {"field": "label"}},
            },
        ],
    )


def contributions(rows: Sequence[ClientRow]) -> Spec:
    """What each member does to the federation's loss, against its absence and as a Shapley share."""
    measures = {
        "leave_one_out": "Loss with it, minus loss without it",
        "shapley": "Shapley share of the loss",
    }
    found = [row for row in rows if row.chosen and row.leave_one_out is not None]
    known = {
        key: label for key, label in measures.items() if any(getattr(row, key) is not None for row in found)
    }
    values = [
        {"client": row.client, "measure": label, "value": getattr(row, key)}
        for row in found
        for key, label in known.items()
        if getattr(row, key) is not None
    ]
    order = [row.client for row in sorted(found, key=lambda row: row.leave_one_out or 0.0)]
    header = {"title": None, "labelAnchor": "start", "labelFontWeight": "normal"}
    told = ", ".join(f"{row.client} {row.leave_one_out:+.4f}" for row in found)
    return base(
        f"Bars of what each member does to the loss: {told}; negative helps.",
        data={"name": "rows", "values": values},
        facet={
            "column": {"field": "measure", "type": "nominal", "sort": list(known.values()), "header": header}
        },
        spec={
            "width": (WIDTH - 90) // max(1, len(known)) - 12,
            "height": {"step": 26},
            "layer": [
                {"mark": {"type": "bar", "color": LIGHT["chosen"], "height": {"band": 0.7}}},
                {"mark": {"type": "rule", "color": LIGHT["muted"]}, "encoding": {"x": {"datum": 0}}},
            ],
            "encoding": {
                "y": names("client", order),
                "x": quantity("value", "bits", axis={"format": "~g", "tickCount": 4}),
            },
        },
        resolve={"scale": {"x": "independent"}},
    )


def frequency(rows: Sequence[ClientRow], *, limit: int = 12) -> Spec:
    """How often each client is chosen when the noise is drawn again: members, then the nearest outsiders."""
    known = sorted((row for row in rows if row.frequency is not None), key=lambda row: -(row.frequency or 0))
    shown = [row for row in known if row.chosen] + [row for row in known if not row.chosen and row.frequency][
        :limit
    ]
    values = [
        {"client": r.client, "frequency": r.frequency, "status": "chosen" if r.chosen else "not chosen"}
        for r in shown
    ]
    at = {
        "y": names("client", [row.client for row in shown]),
        "x": quantity(
            "frequency",
            "chosen in this share of redrawn pools",
            scale={"domain": [0, 1.08], "nice": False},
            axis={"format": "%", "values": [0, 0.25, 0.5, 0.75, 1]},
        ),
    }
    scale = {"domain": ["chosen", "not chosen"], "range": [LIGHT["chosen"], LIGHT["rest"]]}
    told = ", ".join(f"{r.client} {r.frequency:.0%}{'' if r.chosen else ' (not chosen)'}" for r in shown)
    return base(
        f"Bars of selection frequency under redrawn noise: {told}.",
        data={"name": "rows", "values": values},
        width=WIDTH - 90,
        height={"step": 22},
        layer=[
            {
                "mark": {"type": "bar", "height": {"band": 0.7}},
                "encoding": {**at, "color": {"field": "status", "type": "nominal", "scale": scale}},
            },
            {
                "mark": {"type": "text", "align": "left", "dx": 5, "color": LIGHT["muted"], "fontSize": 11},
                "encoding": {**at, "text": {"field": "frequency", "format": ".0%"}},
            },
        ],
    )


def trace(points: Sequence[tuple[int, float]]) -> Spec:
    """How far above its end the search was while it ran; a log scale shows the last steps as well as the first."""
    end = min(loss for _, loss in points)
    gaps = [loss - end for _, loss in points]
    # The end itself has no place on a log scale; it is drawn a step below the last improvement.
    least = min((gap for gap in gaps if gap > 0), default=1.0) / 3
    values = [
        {"evaluations": max(1, n), "gap": max(gap, least), "loss": loss}
        for (n, loss), gap in zip(points, gaps, strict=True)
    ]
    first, last = values[0], values[-1]
    axis = {"format": "~s", "grid": False, "tickCount": 6}
    return base(
        f"Step line of how far above its end the search was, from a loss of {first['loss']:.4f} after "
        f"{first['evaluations']:,} evaluations to {last['loss']:.4f} after {last['evaluations']:,}.",
        data={"name": "rows", "values": values},
        width=WIDTH - 60,
        height=160,
        mark={"type": "line", "interpolate": "step-after", "color": LIGHT["chosen"], "strokeWidth": 2},
        encoding={
            "x": quantity(
                "evaluations",
                "federations evaluated (log scale)",
                scale={"type": "log", "nice": False},
                axis=axis,
            ),
            "y": quantity(
                "gap",
                "loss above the end (log scale)",
                scale={"type": "log"},
                axis={"format": "~g", "tickCount": 4},
            ),
        },
    )
