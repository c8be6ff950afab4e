"""The long tables of the forecast study, from what ``benchmarks/forecast.py`` has written."""

from __future__ import annotations

import polars as pl
from results import Results
from writing import table

TITLES = {
    "income": "ACSIncome 2018",
    "income_2024": "ACSIncome 2024",
    "public_coverage": "ACSPublicCoverage 2024",
    "travel_time": "ACSTravelTime 2024",
    "employment": "ACSEmployment 2024",
}
MODELS = {"logistic": "logistic regression", "mlp": "network by FedAvg"}
METRICS = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "f1": "F1",
    "spd": "SPD",
    "eod": "EOD",
}
#: The forecast follows the coding of the model that is trained.
CODING = {"logistic": "schema", "mlp": "one-hot"}


def ranking(results: Results) -> str:
    """Rank correlations of loss and forecast with trained metrics."""
    found = results.tables.get("forecast")
    if found is None:
        return ""
    value = {
        (row["task"], row["model"], row["k"], row["proxy"], float(row["epsilon"]), row["metric"]): row["rho"]
        for row in found.to_dicts()
    }
    inf = float("inf")
    rows = []
    for model, model_title in MODELS.items():
        own = f"forecast {CODING[model]}"
        columns = [("PFL paper", inf), ("PFL paper", 1.0), ("PFL calibrated", 1.0)]
        columns += [(own, epsilon) for epsilon in (inf, 1.0, 0.3, 0.1)]
        for task, title in TITLES.items():
            for k in sorted(set(found["k"])):
                for metric, name in METRICS.items():
                    cells = [value.get((task, model, k, *column, metric)) for column in columns]
                    rows.append(
                        (model_title, title, k, name, *("–" if c is None else f"{c:+.2f}" for c in cells))
                    )
    head = (
        "model", "task", "k", "metric", "PFL paper, exact", "PFL paper, ε=1", "PFL calibrated, ε=1",
        "forecast, exact", "forecast, ε=1", "forecast, ε=0.3", "forecast, ε=0.1",
    )  # fmt: skip
    return (
        "## Forecast against training\n\n"
        "Spearman's ρ with the metric of the trained model over random federations; for the PFL a good proxy is "
        "negative for accuracy and F1 and positive for gaps. [What it means](../theory/forecast.md#measured)\n\n"
        + table(head, rows)
    )


def chosen(results: Results) -> str:
    """Federations chosen by forecast, trained."""
    found = results.tables.get("forecast_chosen")
    if found is None:
        return ""
    rows = []
    here = found.filter(
        ((pl.col("model") == "logistic") & (pl.col("coding") == CODING["logistic"]))
        | ((pl.col("model") == "mlp") & (pl.col("coding") == CODING["mlp"]))
    )
    for line in here.to_dicts():
        for metric in ("balanced_accuracy", "accuracy", "spd", "eod"):
            shares = (
                (f"{line['beaten_by']:.0%}", f"{line['beaten_by_of_fair']:.0%}")
                if metric == "balanced_accuracy"
                else ("", "")
            )
            rows.append(
                (
                    TITLES[line["task"]], MODELS[line["model"]], line["draw"], METRICS[metric],
                    *(f"{line[f'{group}_{metric}']:.3f}" for group in ("chosen", "everyone", "random")), *shares,
                )
            )  # fmt: skip
    head = (
        "task", "model", "draw", "metric", "chosen", "all clients", "random mean", "beaten by", "of the fair",
    )  # fmt: skip
    return (
        "## Chosen by forecast, trained\n\n"
        "Best forecast of balanced accuracy with limits on SPD and EOD, k = 5, ε = 1, for each draw of the noise. All "
        "metrics cut at ½, where a federation with more positive labels looks better "
        "([why](../results.md#why-label-rates)). "
        "*Beaten by* is the share of random federations with a better balanced accuracy, *of the fair* the share "
        "among those that keep both limits.\n\n" + table(head, rows)
    )
