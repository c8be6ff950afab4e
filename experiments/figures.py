"""Figures, the page of results and its long tables, from the tables that the experiments have written so far.

python experiments/figures.py          # docs/results.md, docs/results/tables.md and docs/results/*.svg
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import polars as pl

sys.path.insert(0, str(Path(__file__).parent))

import charts
import long_tables
import noise_figures
import page
from comparisons import TITLES, load
from contrasts import SHOWN
from fronts import GAP, front
from results import Results
from store import RESULTS

from fedwise.files import write_new

GROUPS = (
    "chosen", "exact tables", "paper mode", "listed", "forecast accuracy", "forecast fair", "everyone", "random",
    "matched",
)  # fmt: skip


def draw(results: Results, out: Path) -> list[str]:
    """Draw what there is data for; the names of the files."""
    made = []
    for name, make in {
        "pareto.svg": pareto,
        "federations.svg": _federations,
        "sizes.svg": _sizes,
        "convergence.svg": _convergence,
        "epsilon.svg": _epsilon,
        "epsilon_trained.svg": _epsilon_trained,
        "race.svg": _race,
        "calibration.svg": _calibration,
        "noise_bias.svg": noise_figures.noise_bias,
        "noise_spread.svg": noise_figures.noise_spread,
        "noise_orders.svg": noise_figures.noise_orders,
        "audit_auc.svg": noise_figures.audit_auc,
        "audit_tpr.svg": noise_figures.audit_tpr,
        "audit_roc.svg": noise_figures.audit_roc,
    }.items():
        spec = make(results)
        if spec is not None:
            charts.save(spec, out / name)
            made.append(name)
    return made


def _titled(table: pl.DataFrame, results: Results) -> pl.DataFrame:
    titles = dict(results.tasks)
    return table.with_columns(pl.col("task").replace(titles).alias("title"))


def _plain(results: Results) -> pl.DataFrame | None:
    if results.runs is None:
        return None
    return _titled(
        results.runs.filter((pl.col("strategy") == "fedavg") & (pl.col("sampler") == "full")), results
    )


def _melt(table: pl.DataFrame, metrics: dict[str, str]) -> pl.DataFrame:
    long = table.unpivot(on=list(metrics), index=["title", "group", "k"], variable_name="metric")
    return long.with_columns(pl.col("metric").replace(metrics))


#: Kinds of evidence in the picture of fronts, by the names there.
NAMED = {
    "pfl": "least loss",
    "forecast_balanced": "forecast: balanced accuracy",
    "forecast_auc": "forecast: AUC",
    "forecast_fair": "forecast: fair",
    "label_rate": "largest label rate",
    "all": "all clients",
    "all_reweighed": "all, reweighed",
    "all_threshold_optimizer_tpr": "all, TPR equalised",
    "all_threshold_optimizer_eo": "all, odds equalised",
}


def pareto(results: Results) -> charts.Spec | None:
    """AUC against EOD at matched rates: random federations and their front, chosen ones, all clients."""
    evidence = load(results)
    if evidence is None:
        return None
    rows = []
    for task in evidence.tasks:
        title = TITLES.get(task, task)
        auc, eod = (evidence.grid(task, "random", name)[2].mean(axis=0) for name in ("auc", GAP))
        for a, e, best in zip(auc.tolist(), eod.tolist(), front(auc, eod).tolist(), strict=True):
            rows.append({"title": title, "group": "random", "auc": a, "eod": e, "front": best})
        for kind, name in NAMED.items():
            a, e = (evidence.mean(task, kind, metric) for metric in ("auc", GAP))
            if a is not None and e is not None:
                rows.append({"title": title, "group": name, "auc": a, "eod": e, "front": False})
        for percent in (0, 25, 50, 75, 100):
            kind = f"all_shifted_{percent}" if percent else "all"
            a, e = (evidence.mean(task, kind, metric) for metric in ("auc", GAP))
            if a is not None and e is not None:
                rows.append({"title": title, "group": "shifted", "auc": a, "eod": e, "front": False})
    return charts.fronts(pl.DataFrame(rows).with_columns(pl.col("auc", "eod").round(4)))


def _federations(results: Results) -> charts.Spec | None:
    runs = _plain(results)
    if runs is None:
        return None
    here = runs.filter((pl.col("k") == results.first) | (pl.col("group") == "everyone"))
    return charts.strips(_melt(here, SHOWN), GROUPS, SHOWN)


def _sizes(results: Results) -> charts.Spec | None:
    runs = _plain(results)
    if runs is None:
        return None
    metrics = {"accuracy": "accuracy", "eod": "EOD by sex", "spd": "SPD by sex"}
    here = runs.filter(pl.col("group").is_in(["chosen", "random", "matched"]))
    if here["k"].n_unique() < 2:
        return None
    long = _melt(here.sort("k", maintain_order=True), metrics)
    long = long.with_columns(pl.col("title") + ", k = " + pl.col("k").cast(pl.String))
    long = long.with_columns(pl.col("title").str.replace(r"^ACS", ""))
    return charts.strips(long, ("chosen", "random", "matched"), metrics)


def _convergence(results: Results) -> charts.Spec | None:
    if results.curves is None:
        return None
    here = _titled(
        results.curves.filter(
            (pl.col("strategy") == "fedavg") & (pl.col("sampler") == "full")
            & ((pl.col("k") == results.first) | (pl.col("group") == "everyone"))
            & pl.col("group").is_in(["chosen", "random", "matched", "everyone"])
        ),
        results,
    )  # fmt: skip
    if here.is_empty():
        return None
    shown = here.filter(pl.col("round") > 0).group_by(["title", "group", "round"], maintain_order=True).agg(
        pl.col("accuracy").mean(),
        pl.when(pl.col("group").first() == "random").then(pl.col("accuracy").quantile(0.1)).alias("low"),
        pl.when(pl.col("group").first() == "random").then(pl.col("accuracy").quantile(0.9)).alias("high"),
    )  # fmt: skip
    return charts.curves(shown, ("chosen", "random", "matched", "everyone"), y="accuracy", title="accuracy")


def _with_epsilon(table: pl.DataFrame) -> pl.DataFrame:
    """ε as a text for the axis, so that ∞ has a place."""
    value = pl.col("epsilon").cast(pl.Float64)
    order = pl.when(value.is_infinite()).then(10.0).otherwise(value)
    return table.with_columns(order.alias("shown"))


def _epsilon(results: Results) -> charts.Spec | None:
    table = results.tables.get("sweep")
    if table is None:
        return None
    shown = _with_epsilon(_titled(table, results)).group_by(["title", "mode", "shown"], maintain_order=True).agg(
        pl.col("true_loss").mean(), pl.col("true_loss").min().alias("low"), pl.col("true_loss").max().alias("high")
    )  # fmt: skip
    random = _titled(results.tables["random_losses"].filter(pl.col("k") == results.first), results)
    level = random.group_by("title", maintain_order=True).agg(
        pl.col("true_loss").mean(), pl.col("true_loss").quantile(0.1).alias("low"),
        pl.col("true_loss").quantile(0.9).alias("high"),
    )  # fmt: skip
    at = pl.DataFrame({"shown": sorted(set(shown["shown"]))})
    random_lines = level.join(at, how="cross").with_columns(pl.lit("random").alias("mode"))
    both = pl.concat([shown, random_lines.select(shown.columns)])
    return charts.lines(
        both, x="shown", y="true_loss", colour="mode", facet="title", band=True, log_x=True,
        titles=("ε (the last point is no noise)", "true loss of the selection"),
    )  # fmt: skip


def _epsilon_trained(results: Results) -> charts.Spec | None:
    runs = _plain(results)
    if runs is None:
        return None
    here = runs.filter(pl.col("group") == "sweep")
    if here.is_empty():
        return None
    words = here.with_columns(
        pl.col("label").str.extract(r"epsilon (\S+)").alias("epsilon"),
        pl.col("label").str.extract(r"^(.*?) epsilon").alias("mode"),
    )
    shown = _with_epsilon(words).group_by(["title", "mode", "shown"], maintain_order=True).agg(
        pl.col("accuracy").mean(), pl.col("eod").mean()
    )  # fmt: skip
    long = shown.unpivot(on=["accuracy", "eod"], index=["title", "mode", "shown"], variable_name="metric")
    long = long.with_columns((pl.col("title") + ": " + pl.col("metric")).alias("panel"))
    spec = charts.lines(
        long,
        x="shown",
        y="value",
        colour="mode",
        facet="panel",
        log_x=True,
        titles=("ε (the last point is no noise)", ""),
    )
    return {**spec, "resolve": {"scale": {"y": "independent"}}}


def _race(results: Results) -> charts.Spec | None:
    runs = _plain(results)
    if runs is None:
        return None
    metrics = {"accuracy": "accuracy", "eod_race": "EOD by race", "spd_race": "SPD by race"}
    here = runs.filter((pl.col("k") == results.first) & pl.col("group").is_in(["race", "chosen", "random"]))
    return charts.strips(_melt(here, metrics), ("race", "chosen", "random"), metrics)


def _calibration(results: Results) -> charts.Spec | None:
    table = results.tables.get("calibration")
    if table is None:
        return None
    loss = (
        2.0 * pl.col("direct_bias") + 0.8889 * pl.col("proxy_bias") + 0.1111 * pl.col("redundancy")
        - 1.3333 * pl.col("signal")
    )  # fmt: skip
    long = _titled(table, results).with_columns(loss.alias("loss")).unpivot(
        on=["accuracy", "f1", "eod", "mad"], index=["title", "loss", "k"], variable_name="metric"
    )  # fmt: skip
    long = long.with_columns((pl.col("title") + ": " + pl.col("metric")).alias("panel"))
    # Panels come in the order of the rows: tasks as lines, metrics as columns.
    long = long.sort("title", maintain_order=True)
    return charts.scatter(
        long,
        x="loss",
        y="value",
        titles=("loss (paper's weights)", ""),
        facet="panel",
        independent=True,
        columns=4,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="directory of the tables")
    parser.add_argument("--page", type=Path, default=None, help="default: results.md beside the directory")
    options = parser.parse_args(arguments)
    results = Results.load(options.results)
    made = draw(results, options.results)
    target = options.page or options.results.parent / "results.md"
    behind = options.results / "tables.md"
    write_new(target, page.render(results, made, options.results.name).encode(), force=True)
    write_new(behind, long_tables.render(results, made).encode(), force=True)
    print(f"{len(made)} figures, {target}, {behind}")


if __name__ == "__main__":
    main()
