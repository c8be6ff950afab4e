"""Dirty figures: detection by kind and severity, and the gap of every way to train."""

from __future__ import annotations

import polars as pl
from charts import Spec
from dirt import PROMISED, SEVERITIES
from dirty_contrasts import robust_best
from spoilt import TITLES

from fedwise.view.palette import LIGHT

#: Ways of the picture, in order, with their colours.
WAYS = {
    "all clients": "#1b1d22",
    "best robust rule": "#e69f00",
    "random federations": "#b9bec8",
    "chosen": "#56b4e9",
    "chosen, suspects excluded": LIGHT["chosen"],
    "oracle": "#009e73",
}
_SOURCES = {
    "all clients": "all", "random federations": "random", "chosen": "chosen",
    "chosen, suspects excluded": "chosen, quality", "oracle": "oracle",
}  # fmt: skip


def detection_figure(detected: pl.DataFrame) -> Spec:
    """One dot a task, a row a kind, a column a severity; 30% dirty, ε = 1."""
    here = detected.filter((pl.col("share") == 0.3) & (pl.col("epsilon") == 1.0))
    means = (
        here.group_by("task", "kind", "severity").agg(pl.col("auc").mean())
        .with_columns(pl.col("task").replace_strict(TITLES).alias("title"))
        .sort("task", "kind", "severity")
    )  # fmt: skip
    kinds = here["kind"].unique(maintain_order=True).to_list()
    point = {
        "mark": {"type": "point", "filled": True, "size": 60, "opacity": 0.75, "color": LIGHT["chosen"]},
        "encoding": {
            "x": {"field": "auc", "type": "quantitative", "title": "detection AUC", "scale": {"domain": [0.3, 1.0]}},
            "y": {"field": "kind", "type": "nominal", "title": None, "sort": kinds},
        },
    }  # fmt: skip
    return {
        "data": {"values": means.to_dicts()},
        "facet": {
            "column": {"field": "severity", "type": "nominal", "title": None, "sort": list(SEVERITIES)}
        },
        "spec": {"layer": [point], "width": 220, "height": 190},
    }


def gap_rows(trained: pl.DataFrame, column: str = "eod:SEX@rate") -> pl.DataFrame:
    """Mean of a metric for every kind and way of the picture."""
    rows = []
    for kind in PROMISED:
        part = trained.filter(pl.col("kind") == kind)
        if part.height == 0:
            continue
        for way in WAYS:
            if way == "best robust rule":
                value: float | None = robust_best(part, column, larger=column == "auc")[1]
            else:
                found = part.filter(pl.col("way") == _SOURCES[way])[column].mean()
                value = None if found is None else float(found)  # type: ignore[arg-type]
            rows.append({"kind": kind, "way": way, "value": value})
    return pl.DataFrame(rows)


def gap_figure(trained: pl.DataFrame) -> Spec:
    """EOD and AUC of the trained model on clean rows: one row a kind, one colour a way."""

    def panel(column: str, title: str) -> Spec:
        rows = gap_rows(trained, column)
        return {
            "data": {"values": rows.to_dicts()},
            "width": 300,
            "height": 210,
            "layer": [
                {
                    "mark": {"type": "rule", "color": "#d5d8de"},
                    "encoding": {
                        "y": {"field": "kind", "type": "nominal", "sort": list(PROMISED), "title": None},
                        "x": {
                            "field": "value", "type": "quantitative", "aggregate": "min", "title": title,
                            "scale": {"zero": False},
                        },
                        "x2": {"field": "value", "aggregate": "max"},
                    },
                },
                {
                    "mark": {"type": "point", "filled": True, "size": 110, "opacity": 0.95},
                    "encoding": {
                        "y": {"field": "kind", "type": "nominal", "sort": list(PROMISED), "title": None},
                        "x": {"field": "value", "type": "quantitative", "title": title, "scale": {"zero": False}},
                        "color": {
                            "field": "way", "type": "nominal", "title": None,
                            "scale": {"domain": list(WAYS), "range": list(WAYS.values())},
                            "legend": {"orient": "bottom", "columns": 3},
                        },
                    },
                },
            ],
        }  # fmt: skip

    return {
        "hconcat": [
            panel("eod:SEX@rate", "gap between the sexes (EOD), smaller is better"),
            panel("auc", "AUC on clean records, larger is better"),
        ]
    }
