"""Charts of the results: plain tables in, Vega-Lite out, drawn as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import vl_convert

from fedwise.files import write_new
from fedwise.view.palette import LIGHT, config

Spec = dict[str, Any]

#: Colours of the groups, safe for the colour-blind.
COLOURS = {
    "chosen": LIGHT["chosen"],
    "exact tables": "#56b4e9",
    "paper mode": "#e69f00",
    "listed": "#cc79a7",
    "forecast accuracy": "#009e73",
    "forecast fair": "#00664a",
    "race": "#8b5a2b",
    "everyone": "#1b1d22",
    "random": "#b9bec8",
    "matched": "#7d8390",
}


def save(spec: Spec, path: Path) -> None:
    """Draw on white, so that it can be read on a dark page too."""
    whole = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "config": {**config(), "background": "white"},
    }
    svg = vl_convert.vegalite_to_svg({**whole, **spec})
    write_new(path, svg.encode(), force=True)


def _values(table: pl.DataFrame) -> Spec:
    return {"values": table.to_dicts()}


def _number(field: str, title: str, *, log: bool = False, zero: bool = False, **more: Any) -> Spec:
    return {
        "field": field,
        "type": "quantitative",
        "title": title,
        "scale": {"type": "log"} if log else {"zero": zero},
        "axis": {"format": "~g", **more},
    }


def strips(table: pl.DataFrame, groups: Sequence[str], metrics: dict[str, str], *, size: int = 240) -> Spec:
    """One dot a training: groups down, metrics across, tasks as rows. Columns ``title, group, metric, value``."""
    present = [group for group in groups if group in set(table["group"])]
    table = table.filter(pl.col("group").is_in(present))
    point = {
        "mark": {"type": "point", "filled": True, "size": 34, "opacity": 0.65},
        "encoding": {
            "y": {
                "field": "group", "type": "nominal", "sort": present, "title": None,
                "axis": {"labelOverlap": False},
            },
            "x": _number("value", "", tickCount=5),
            "color": {
                "field": "group", "type": "nominal", "legend": None,
                "scale": {"domain": present, "range": [COLOURS.get(g, LIGHT["muted"]) for g in present]},
            },
        },
    }  # fmt: skip
    mean = {
        "mark": {"type": "tick", "thickness": 3, "height": 18, "color": LIGHT["ink"]},
        "encoding": {
            "y": {"field": "group", "type": "nominal", "sort": present},
            "x": {"field": "value", "type": "quantitative", "aggregate": "mean"},
        },
    }
    layered = {"layer": [point, mean], "width": size, "height": 20 * len(present)}
    return {
        "data": _values(table),
        "facet": {
            # In the order of the table, written across: along the side long names run into one another.
            "row": {
                "field": "title",
                "type": "nominal",
                "title": None,
                "sort": table["title"].unique(maintain_order=True).to_list(),
                "header": {"labelAngle": 0, "labelAlign": "left", "labelPadding": 8},
            },
            "column": {"field": "metric", "type": "nominal", "title": None, "sort": list(metrics.values())},
        },
        "spec": layered,
        "resolve": {"scale": {"x": "independent"}},
    }


def curves(table: pl.DataFrame, groups: Sequence[str], *, y: str, title: str) -> Spec:
    """Mean over trainings with the middle 80% of random federations shaded. Columns ``title, group, round``."""
    present = [group for group in groups if group in set(table["group"])]
    colour = {
        "field": "group", "type": "nominal",
        "scale": {"domain": present, "range": [COLOURS.get(g, LIGHT["muted"]) for g in present]},
    }  # fmt: skip
    band = {
        "transform": [{"filter": "datum.low != null"}],
        "mark": {"type": "area", "opacity": 0.35},
        "encoding": {
            "x": _number("round", "round"),
            "y": _number("low", title),
            "y2": {"field": "high"},
            "color": colour,
        },
    }
    line = {
        "mark": {"type": "line", "strokeWidth": 2.2},
        "encoding": {"x": _number("round", "round"), "y": _number(y, title), "color": colour},
    }
    return {
        "data": _values(table),
        "facet": {"field": "title", "type": "nominal", "title": None},
        "columns": 3,
        "spec": {"layer": [band, line], "width": 250, "height": 180},
        "resolve": {"scale": {"y": "independent"}},
    }


def lines(
    table: pl.DataFrame, *, x: str, y: str, colour: str, titles: tuple[str, str], facet: str | None = None,
    log_x: bool = False, log_y: bool = False, points: bool = True, dash: str | None = None, band: bool = False,
    width: int = 320, height: int = 220, columns: int = 2, domain: list[float] | None = None,
) -> Spec:  # fmt: skip
    """Lines by group; `dash` names a column that is drawn dashed, `band` shades between low and high."""
    by_x, by_y = _number(x, titles[0], log=log_x), _number(y, titles[1], log=log_y)
    if domain is not None:
        by_y["scale"]["domain"] = domain
        by_y["scale"]["clamp"] = True
    encoding: Spec = {"x": by_x, "y": by_y, "color": {"field": colour, "type": "nominal"}}
    if dash is not None:
        encoding["strokeDash"] = {"field": dash, "type": "nominal"}
    layers: list[Spec] = [{"mark": {"type": "line", "point": points, "strokeWidth": 2}, "encoding": encoding}]
    if band:
        shade = {
            "x": by_x, "y": {**by_y, "field": "low"}, "y2": {"field": "high"},
            "color": {"field": colour, "type": "nominal"},
        }  # fmt: skip
        layers.insert(0, {"mark": {"type": "area", "opacity": 0.2}, "encoding": shade})
    spec: Spec = {"layer": layers, "width": width, "height": height}
    if facet is None:
        return {"data": _values(table), **spec}
    return {
        "data": _values(table),
        "facet": {"field": facet, "type": "nominal", "title": None},
        "columns": columns,
        "spec": spec,
    }


def scatter(
    table: pl.DataFrame, *, x: str, y: str, titles: tuple[str, str], colour: str | None = None,
    facet: str | None = None, diagonal: bool = False, independent: bool = False, columns: int = 3,
) -> Spec:  # fmt: skip
    """Points, with the line y = x where asked."""
    encoding: Spec = {"x": _number(x, titles[0]), "y": _number(y, titles[1])}
    if colour is not None:
        encoding["color"] = {"field": colour, "type": "nominal"}
    else:
        encoding["color"] = {"value": LIGHT["chosen"]}
    layers: list[Spec] = [
        {"mark": {"type": "point", "filled": True, "size": 34, "opacity": 0.7}, "encoding": encoding}
    ]
    if diagonal:
        ends = {"values": [{"a": 0, "b": 0}, {"a": 1, "b": 1}]}
        layers.append(
            {
                "data": ends,
                "mark": {"type": "line", "strokeDash": [4, 3], "color": LIGHT["muted"]},
                "encoding": {
                    "x": {"field": "a", "type": "quantitative"},
                    "y": {"field": "b", "type": "quantitative"},
                },
            }
        )
    spec: Spec = {"layer": layers, "width": 240, "height": 200}
    if facet is None:
        return {"data": _values(table), **spec}
    found: Spec = {
        "data": _values(table),
        "facet": {
            "field": facet, "type": "nominal", "title": None,
            "sort": table[facet].unique(maintain_order=True).to_list(),
        },
        "columns": columns,
        "spec": spec,
    }  # fmt: skip
    if independent:
        found["resolve"] = {"scale": {"x": "independent", "y": "independent"}}
    return found


#: Named models in the picture of AUC against EOD: colour and shape.
MARKS = {
    "least loss": (LIGHT["chosen"], "diamond"),
    "forecast: balanced accuracy": ("#009e73", "triangle-up"),
    "forecast: AUC": ("#00664a", "triangle-down"),
    "forecast: fair": ("#56b4e9", "square"),
    "largest label rate": ("#e69f00", "square"),
    "all clients": ("#1b1d22", "circle"),
    "all, reweighed": ("#8b5a2b", "cross"),
    "all, TPR equalised": ("#cc79a7", "triangle-right"),
    "all, odds equalised": ("#d55e00", "triangle-left"),
}


def fronts(table: pl.DataFrame) -> Spec:
    """AUC against EOD, one panel a task. Columns ``title, group, auc, eod, front``; random ones as a cloud.

    The full line is the front of the random federations, the dashed one that of all clients with scores that are
    shifted between the groups.
    """
    names = [name for name in MARKS if name in set(table["group"])]
    x, y = _number("eod", "EOD at matched rate (less is fairer)"), _number("auc", "AUC (more is better)")
    place = {"x": x, "y": y}
    cloud = {
        "transform": [{"filter": "datum.group == 'random'"}],
        "mark": {"type": "point", "filled": True, "size": 14, "opacity": 0.55, "color": COLOURS["random"]},
        "encoding": place,
    }
    edge = {
        "transform": [{"filter": "datum.front"}],
        "mark": {
            "type": "line",
            "color": COLOURS["matched"],
            "strokeWidth": 1.5,
            "interpolate": "step-after",
        },
        "encoding": {**place, "order": {"field": "eod"}},
    }
    moved = {
        "transform": [{"filter": "datum.group == 'shifted'"}],
        "mark": {"type": "line", "color": "#1b1d22", "strokeWidth": 1.2, "strokeDash": [4, 3]},
        "encoding": {**place, "order": {"field": "eod"}},
    }
    named = {
        "transform": [{"filter": "datum.group != 'random' && datum.group != 'shifted'"}],
        "mark": {"type": "point", "filled": True, "size": 90, "opacity": 0.95},
        "encoding": {
            **place,
            "color": {
                "field": "group", "type": "nominal", "title": None,
                "scale": {"domain": names, "range": [MARKS[name][0] for name in names]},
            },
            "shape": {
                "field": "group", "type": "nominal", "title": None,
                "scale": {"domain": names, "range": [MARKS[name][1] for name in names]},
            },
        },
    }  # fmt: skip
    return {
        "data": _values(table),
        "facet": {
            "field": "title", "type": "nominal", "title": None,
            "sort": table["title"].unique(maintain_order=True).to_list(),
        },
        "columns": 3,
        "spec": {"layer": [cloud, edge, moved, named], "width": 240, "height": 200},
        "resolve": {"scale": {"x": "independent", "y": "independent"}},
    }  # fmt: skip
