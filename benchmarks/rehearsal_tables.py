"""Tables of the rehearsal's benchmark, from the parts it wrote."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl

from fedwise.objective.metric import parse
from fedwise.rehearsal.performance import Rehearsed, with_figures

#: Metrics reported, without attribute.
METRICS = (
    "auc", "loss", "balanced_accuracy", "spd", "eod", "balanced_accuracy@rate", "spd@rate", "eod@rate",
)  # fmt: skip


def read(folder: Path) -> pl.DataFrame:
    """One row for each pool, size, ε, noise, federation and metric: trained twice, rehearsed, forecast."""
    lines = []
    for path in sorted(folder.glob("*.rehearsal.json")):
        name, rest = path.name.split(".", 1)
        epsilon, noise, _ = rest.removesuffix(".rehearsal.json").rsplit(".", 2)
        trained = _trained(folder / f"{name}.trained.jsonl")
        rates = json.loads((folder / f"{name}.rates.json").read_text())
        forecast = {
            tuple(line["clients"]): line["metrics"]
            for line in json.loads((folder / path.name.replace("rehearsal", "forecast")).read_text())
        }
        found = Rehearsed.load(path)
        for one in with_figures(found.performances):
            key = tuple(one.clients)
            if (key, 1) not in trained:
                continue
            for figure in one.figures:
                short = parse(figure.metric)._replace(attribute="")
                if str(short) not in METRICS:
                    continue
                lines.append(
                    {
                        "pool": name, "k": len(key), "epsilon": float(epsilon), "noise": int(noise),
                        "clients": " ".join(key), "metric": str(short), "trained": trained[key, 0][figure.metric],
                        "again": trained[key, 1][figure.metric], "rehearsed": figure.value, "low": figure.low,
                        "high": figure.high, "spread": figure.spread, "forecast": forecast[key].get(str(short)),
                        "label_rate": sum(rates[c] for c in key) / len(key),
                    }
                )  # fmt: skip
    return pl.DataFrame(lines)


def _trained(path: Path) -> dict[tuple[tuple[str, ...], int], dict[str, float]]:
    entries = map(json.loads, path.read_text().splitlines())
    return {(tuple(e["clients"]), e["seed"]): e["metrics"] for e in entries}


def summary(rows: pl.DataFrame, *by: str) -> pl.DataFrame:
    """Ranks, levels and coverage within each cell, then their means by `by`."""
    cell = ["pool", "k", "epsilon", "noise", "metric"]
    truth = (pl.col("trained") + pl.col("again")) / 2

    def rho(a: str | pl.Expr, b: str | pl.Expr) -> pl.Expr:
        return pl.corr(a, b, method="spearman")

    return (
        rows.with_columns(truth=truth)
        .group_by(cell)
        .agg(
            n=pl.len(),
            ceiling=rho("trained", "again"),
            rehearsal=rho("rehearsed", "trained"),
            forecast_rho=rho("forecast", "trained"),
            rate_rho=rho("label_rate", "trained").abs(),
            mae=(pl.col("rehearsed") - pl.col("trained")).abs().mean(),
            bias=(pl.col("rehearsed") - pl.col("trained")).mean(),
            forecast_mae=(pl.col("forecast") - pl.col("trained")).abs().mean(),
            forecast_bias=(pl.col("forecast") - pl.col("trained")).mean(),
            level=pl.col("trained").mean(),
            sd=pl.col("trained").std(),
            covered=pl.col("trained").is_between("low", "high").mean(),
            width=(pl.col("high") - pl.col("low")).mean(),
        )
        .group_by(*by)
        .agg(pl.exclude(*cell).mean(), cells=pl.len())
        .sort(*by)
    )


def text(rows: pl.DataFrame) -> str:
    """The tables as text."""
    with pl.Config(tbl_rows=400, tbl_cols=30, tbl_width_chars=220, float_precision=3, tbl_formatting="ASCII_MARKDOWN",
                   tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True):  # fmt: skip
        return str(summary(rows, "epsilon", "k", "pool", "metric"))
