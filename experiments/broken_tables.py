"""Dirty pools on the page: what choosing does when three in ten clients hold broken data."""

from __future__ import annotations

import numpy as np
import polars as pl
from comparisons import TITLES, Evidence
from fronts import BOTH, Setting, setting
from results import Results
from writing import table


def by_dirt(results: Results) -> dict[str, Evidence]:
    """The evidence of each kind of dirt."""
    found = results.tables.get("broken")
    if found is None:
        return {}
    named = found.rename({"eod:SEX@rate": "eod@rate", "spd:SEX@rate": "spd@rate"}).with_columns(
        pl.lit("logistic").alias("model"),
        pl.lit(5).alias("k"),
        pl.col("draw").cast(pl.String).alias("federation"),
    )
    return {
        dirt: Evidence(named.filter(pl.col("dirt") == dirt), "logistic", 5)
        for dirt in found["dirt"].unique(maintain_order=True)
    }


def mended(evidence: Evidence) -> list[Setting]:
    """Chosen and post-processed against all clients and post-processed, for each task."""
    found = [setting(evidence, task, *BOTH) for task in evidence.tasks]
    return [one for one in found if one is not None]


def _mean(evidence: Evidence, kind: str, metric: str) -> float:
    values = [evidence.mean(task, kind, metric) for task in evidence.tasks]
    return float(np.mean([value for value in values if value is not None]))


def short(results: Results) -> str:
    """A row for each kind of dirt, means over tasks."""
    rows = []
    for dirt, evidence in by_dirt(results).items():
        pairs = [
            f"{_mean(evidence, kind, metric):.3f}"
            for metric, kinds in (("auc", ("pfl", "all")), ("eod@rate", BOTH))
            for kind in kinds
        ]
        found = mended(evidence)
        rows.append(
            (
                dirt,
                f"{_mean(evidence, 'pfl', 'dirty'):.0%}",
                *pairs,
                f"{sum(one.won for one in found)} of {len(found)}",
            )
        )
    columns = (
        "broken in 30% of clients", "of the chosen", "AUC chosen", "AUC all", "EOD chosen", "EOD all",
        "smaller, equal AUC",
    )  # fmt: skip
    return table(columns, rows) if rows else ""


def render(results: Results) -> str:
    """A row for each kind of dirt and task, with intervals."""
    rows = []
    for dirt, evidence in by_dirt(results).items():
        for task in evidence.tasks:
            kinds = ("pfl", "all", "random", "clean")
            cells = [evidence.mean(task, kind, "auc") for kind in kinds]
            gaps = [evidence.mean(task, kind, "eod@rate") for kind in ("pfl", "all", *BOTH)]
            found = setting(evidence, task, *BOTH)
            if found is None:
                continue
            share = evidence.mean(task, "pfl", "dirty")
            rows.append(
                (
                    dirt, TITLES[task], "–" if share is None else f"{share:.0%}",
                    *("–" if cell is None else f"{cell:.4f}" for cell in (*cells, *gaps)),
                    found.auc.text(4), found.eod.text(4),
                )
            )  # fmt: skip
    if not rows:
        return ""
    columns = (
        "broken", "task", "of the chosen", "AUC chosen", "AUC all", "AUC random", "AUC all clean ones", "EOD chosen",
        "EOD all", "EOD chosen, TPR equalised", "EOD all, TPR equalised", "AUC, chosen − all", "EOD, equalised both",
    )  # fmt: skip
    return (
        "## Dirty pools\n\n"
        "Logistic regression, k = 5, ε = 1, least loss; three splits with three draws of the noise each, 30 random "
        "federations. In 30% of the clients, drawn at random, tables and training rows are broken; the rows tested on "
        "are not. Gaps at matched rates (`experiments/broken.py`, with the estimates of 0.1.0).\n\n"
        + table(columns, rows)
    )
