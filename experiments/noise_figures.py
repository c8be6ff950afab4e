"""Figures of the noise studies and of the audit."""

from __future__ import annotations

import charts
import polars as pl
from results import Results


def noise_bias(results: Results) -> charts.Spec | None:
    """Error of mutual information by signal-to-noise ratio."""
    table = results.tables.get("noise_information")
    if table is None:
        return None
    return charts.lines(
        table, x="snr", y="bias", colour="pair", log_x=True, band=True, width=460,
        titles=("mean count over noise", "error of I in bits: mean, 5% to 95%"),
    )  # fmt: skip


def noise_spread(results: Results) -> charts.Spec | None:
    """Predicted over observed spread, both gradients."""
    table = results.tables.get("noise_information")
    if table is None:
        return None
    names = {"delta_corrected": "(PMI − I)/n", "delta_printed": "−(PMI + I)/n, as printed"}
    long = table.with_columns((pl.col(name) / pl.col("spread")).alias(name) for name in names).unpivot(
        on=list(names), index=["pair", "snr"], variable_name="gradient", value_name="ratio"
    )
    long = long.with_columns(pl.col("gradient").replace(names))
    return charts.lines(
        long, x="snr", y="ratio", colour="gradient", facet="pair", log_x=True, domain=[0.5, 2.0],
        titles=("mean count over noise", "predicted over observed spread"),
    )  # fmt: skip


def noise_orders(results: Results) -> charts.Spec | None:
    """Misordering of neighbours against its bound."""
    table = results.tables.get("noise_orders")
    if table is None:
        return None
    long = table.unpivot(
        on=["misordered", "misordered_unbiased"],
        index=["bound", "epsilon"],
        variable_name="kind",
        value_name="observed",
    ).with_columns(
        pl.col("kind").replace({"misordered": "as estimated", "misordered_unbiased": "bias taken out"}),
        ("ε = " + pl.col("epsilon").cast(pl.String)).alias("panel"),
    )
    return charts.scatter(
        long,
        x="bound",
        y="observed",
        colour="kind",
        facet="panel",
        diagonal=True,
        titles=("bound", "misordered, observed"),
    )


def _audited(results: Results) -> pl.DataFrame | None:
    table = results.tables.get("audit")
    if table is None:
        return None
    mean = table.group_by(["mode", "attack", "epsilon", "task"], maintain_order=True).agg(
        pl.col("auc", "auc_theory", "tpr_at_1_percent", "tpr_theory").mean()
    )
    return mean.with_columns((pl.col("mode") + ", " + pl.col("attack")).alias("attacked"))


def _audit_chart(results: Results, measured: str, theory: str, title: str) -> charts.Spec | None:
    table = _audited(results)
    if table is None:
        return None
    long = table.unpivot(on=[measured, theory], index=["task", "attacked", "epsilon"], variable_name="source")
    long = long.with_columns(pl.col("source").replace({measured: "measured", theory: "theory"}))
    return charts.lines(
        long,
        x="epsilon",
        y="value",
        colour="attacked",
        dash="source",
        facet="task",
        log_x=True,
        titles=("ε", title),
    )


def audit_auc(results: Results) -> charts.Spec | None:
    """AUC of the attack against ε."""
    return _audit_chart(results, "auc", "auc_theory", "AUC of the attack")


def audit_tpr(results: Results) -> charts.Spec | None:
    """True positive rate at 1% false positives against ε."""
    return _audit_chart(results, "tpr_at_1_percent", "tpr_theory", "TPR at 1% FPR")


def audit_roc(results: Results) -> charts.Spec | None:
    """ROC curves on log axes."""
    table = results.tables.get("audit_roc")
    if table is None:
        return None
    here = table.filter((pl.col("task") == table["task"][0]) & (pl.col("tpr") > 0) & (pl.col("fpr") > 0))
    long = here.unpivot(
        on=["tpr", "theory"], index=["mode", "attack", "epsilon", "fpr"], variable_name="source"
    )
    long = long.with_columns(
        pl.col("source").replace({"tpr": "measured"}),
        (pl.col("mode") + ", " + pl.col("attack")).alias("panel"),
        ("ε = " + pl.col("epsilon").cast(pl.String)).alias("budget"),
    ).filter(pl.col("value") > 0)
    return charts.lines(
        long, x="fpr", y="value", colour="budget", dash="source", facet="panel", log_x=True, log_y=True, points=False,
        titles=("false positive rate", "true positive rate"),
    )  # fmt: skip
