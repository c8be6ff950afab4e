"""Charts of outcomes: training curves, final metrics and the audit. Plain values in, Vega-Lite out."""

from __future__ import annotations

from collections.abc import Sequence

from .charts import WIDTH, Spec, base, names, quantity
from .outcomes import Curve, Measure
from .palette import LIGHT
from .tables import AuditRow
from .trade_offs import TradeOff

#: Dash and colour of each line, so that lines differ without colour too: the chosen federation is solid.
_DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [10, 4], [4, 1])
_COLOURS = ("chosen", "direct_bias", "redundancy", "proxy_bias", "good", "muted")


def curves(found: Sequence[Curve], metric: str, title: str, attribute: str = "") -> Spec:
    """One metric over the rounds: a line for each training, a band from the smallest to the largest seed."""
    shown = [curve for curve in found if curve.metric == metric and curve.attribute == attribute]
    labels = [curve.label for curve in shown]
    values = [
        {"label": c.label, "round": r, "mean": m, "low": low, "high": high}
        for c in shown
        for r, m, low, high in zip(c.rounds, c.mean, c.low, c.high, strict=True)
    ]
    each = range(len(labels))
    by_label = {"field": "label", "type": "nominal", "sort": labels}
    colour = {
        **by_label,
        "scale": {"domain": labels, "range": [LIGHT[_COLOURS[i % len(_COLOURS)]] for i in each]},
        "legend": {"columns": 3, "symbolType": "stroke", "symbolStrokeWidth": 3, "labelLimit": 260},
    }
    dash = {
        **by_label,
        "scale": {"domain": labels, "range": [_DASHES[i % len(_DASHES)] for i in each]},
        "legend": None,
    }
    x = quantity(
        "round", "round", axis={"grid": False, "tickMinStep": 1, "tickCount": 10}, scale={"nice": False}
    )
    scale = {"zero": False}
    told = ", ".join(f"{c.label} {c.mean[-1]:.4f}" for c in shown)
    return base(
        f"Lines of {title.lower()} over the rounds of training. Last round: {told}.",
        data={"name": "rows", "values": values},
        width=WIDTH - 60,
        height=200,
        layer=[
            {
                "mark": {"type": "area", "opacity": 0.16},
                "encoding": {
                    "x": x,
                    "y": quantity("low", title, scale=scale),
                    "y2": {"field": "high"},
                    "color": colour,
                },
            },
            {
                "mark": {"type": "line", "strokeWidth": 2.2},
                "encoding": {
                    "x": x,
                    "y": quantity("mean", title, scale=scale),
                    "color": colour,
                    "strokeDash": dash,
                },
            },
        ],
    )


def audit(rows: Sequence[AuditRow]) -> Spec:
    """Attack success (AUC) for each budget against what theory allows."""
    values = [
        {
            "epsilon": row.epsilon if isinstance(row.epsilon, str) else f"{row.epsilon:g}",
            "attack": row.target,
            "auc": row.auc,
            "low": row.auc - 1.96 * row.auc_std_error,
            "high": row.auc + 1.96 * row.auc_std_error,
            "theory": row.auc_theory,
        }
        for row in rows
    ]
    attacks = list(dict.fromkeys(value["attack"] for value in values))
    axis = {"labelAngle": 0, "labelColor": LIGHT["ink"]}
    at = {
        "x": {"field": "epsilon", "type": "ordinal", "title": "privacy budget ε", "sort": None, "axis": axis},
        "xOffset": {"field": "attack", "type": "nominal", "sort": attacks},
    }

    def height(field: str) -> Spec:
        return quantity(field, "attack AUC (0.5 = blind guess)", scale={"zero": False, "domainMin": 0.45})

    told = "; ".join(
        f"ε={v['epsilon']} {v['attack']}: {v['auc']:.3f}, theory {v['theory']:.3f}" for v in values
    )
    blind = {"type": "rule", "color": LIGHT["muted"], "strokeDash": [3, 3]}
    dot = {"type": "point", "filled": True, "opacity": 1, "size": 80, "color": LIGHT["chosen"]}
    return base(
        f"Attack success for each privacy budget with 95% intervals; a tick marks the theory. {told}.",
        data={"name": "rows", "values": values},
        width=WIDTH - 60,
        height=200,
        layer=[
            {"mark": blind, "encoding": {"y": {"datum": 0.5}}},
            {
                "mark": {"type": "rule", "strokeWidth": 2, "color": LIGHT["chosen"]},
                "encoding": {**at, "y": height("low"), "y2": {"field": "high"}},
            },
            {
                "mark": dot,
                "encoding": {
                    **at,
                    "y": height("auc"),
                    "shape": {"field": "attack", "type": "nominal", "sort": attacks},
                },
            },
            {
                "mark": {"type": "tick", "color": LIGHT["ink"], "thickness": 2, "width": 18},
                "encoding": {**at, "y": height("theory")},
            },
        ],
    )


def outcome(final: Sequence[Measure], metric: str, title: str, attribute: str = "") -> Spec:
    """One metric at the end of training: chosen federation against each baseline."""
    rows = [measure for measure in final if measure.metric == metric and measure.attribute == attribute]
    values = [
        {
            "label": m.label,
            "value": m.value,
            "low": m.low,
            "high": m.high,
            "status": "baseline" if i else "chosen",
        }
        for i, m in enumerate(rows)
    ]

    def by_status(*values: str) -> Spec:
        scale = {"domain": ["chosen", "baseline"], "range": list(values)}
        return {"field": "status", "type": "nominal", "legend": None, "scale": scale}

    y = names("label", [measure.label for measure in rows], limit=200)
    colour = by_status(LIGHT["chosen"], LIGHT["muted"])
    told = ", ".join(f"{m.label} {m.value:.4f}" for m in rows)
    return base(
        f"{title} at the end of training: {told}.",
        data={"name": "rows", "values": values},
        width=WIDTH - 170,
        height={"step": 26},
        layer=[
            {
                "mark": {"type": "rule", "strokeWidth": 2},
                "encoding": {"y": y, "x": quantity("low"), "x2": {"field": "high"}, "color": colour},
            },
            {
                "mark": {"type": "point", "filled": True, "opacity": 1, "size": 90},
                "encoding": {
                    "y": y,
                    "x": quantity(
                        "value", title, scale={"zero": False, "padding": 20}, axis={"tickCount": 6}
                    ),
                    "color": colour,
                    "shape": by_status("circle", "diamond"),
                },
            },
        ],
    )


def trade_off(points: Sequence[TradeOff]) -> Spec:
    """AUC against the rate-matched EOD: a point for each training or federation, a line along the best."""
    order = ["chosen", "all clients", "baseline", "random"]
    kinds = [kind for kind in order if any(p.kind == kind for p in points)]
    look = {
        "chosen": (LIGHT["chosen"], "circle", 130),
        "all clients": (LIGHT["proxy_bias"], "square", 100),
        "baseline": (LIGHT["direct_bias"], "diamond", 90),
        "random": (LIGHT["muted"], "circle", 18),
    }
    # Drawn from the last kind to the first, so that the chosen one lies on top.
    values = [
        {"label": p.label, "kind": p.kind, "auc": p.auc, "eod": p.eod, "size": look[p.kind][2]}
        for p in sorted(points, key=lambda p: -order.index(p.kind))
    ]
    front = [{"auc": p.auc, "eod": p.eod} for p in sorted(points, key=lambda p: p.eod) if p.best]

    def by_kind(part: int, **more: object) -> Spec:
        scale = {"domain": kinds, "range": [look[kind][part] for kind in kinds]}
        return {"field": "kind", "type": "nominal", "scale": scale, **more}

    x = quantity("eod", "rate-matched EOD (smaller is fairer)", scale={"zero": False, "padding": 14})
    y = quantity("auc", "AUC (larger is better)", scale={"zero": False, "padding": 14})
    told = ", ".join(f"{p.label} {p.auc:.4f} and {p.eod:.4f}" for p in points if p.kind != "random")
    return base(
        f"AUC against the rate-matched EOD of {len(points)} federations: {told}. "
        f"{len(front)} of them are not beaten in both.",
        data={"name": "rows", "values": values},
        width=WIDTH - 60,
        height=260,
        layer=[
            {
                "data": {"name": "front", "values": front},
                "mark": {"type": "line", "color": LIGHT["muted"], "strokeDash": [4, 3]},
                "encoding": {"x": x, "y": y},
            },
            {
                "mark": {"type": "point", "filled": True, "opacity": 0.9},
                "encoding": {
                    "x": x,
                    "y": y,
                    "color": by_kind(0, legend={"title": None, "orient": "top"}),
                    "shape": by_kind(1),
                    "size": {"field": "size", "type": "quantitative", "scale": None, "legend": None},
                },
            },
        ],
    )
