"""The long tables about weights, noise and the audit."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from results import Results
from writing import picture, table


def calibration(results: Results, figures: Sequence[str]) -> str:
    found = results.facts.get("calibrations") or []
    if not found:
        return ""
    rows = []
    for calibration in found:
        for judged in calibration["judgements"]:
            w = judged["weights"]
            rows.append(
                (
                    dict(results.tasks).get(calibration["task"], calibration["task"]), judged["name"],
                    f"{w['alpha']:g}, {w['beta']:g}, {w['gamma']:g}, {w['lam']:g}", f"{judged['score']:.2f}",
                    *(f"{c['value']:+.2f} ({c['low']:+.2f} to {c['high']:+.2f})" for c in judged["correlations"]),
                )
            )  # fmt: skip
    metrics = [c["metric"] for c in found[0]["judgements"][0]["correlations"]]
    return (
        "## Weights\n\n"
        "`fedwise calibrate`: weights fitted on half of the trained federations, Spearman correlations on the other "
        f"half ({found[0]['judged_on']}) with 95% bootstrap intervals. The paper reports in-sample correlations.\n\n"
        + table(("task", "weights", "α, β, γ, λ", "score", *metrics), rows)
        + "\n\n"
        + picture("calibration.svg", "Loss against trained metrics", figures)
    )


def noise(results: Results, figures: Sequence[str]) -> str:
    if "noise_bias.svg" not in figures:
        return ""
    found = results.tables["noise_information"].filter(pl.col("snr").is_in([1.0, 10.0, 100.0, 1000.0]))
    rows = [
        (
            line["pair"], f"{line['cells']} ({line['empty']} empty)", f"{line['snr']:g}", f"{line['information']:.4f}",
            f"{line['bias']:+.5f}", f"{line['spread']:.5f} ± {line['spread_error']:.5f}",
            f"{line['delta_corrected']:.5f}", f"{line['delta_printed']:.5f}",
        )
        for line in found.to_dicts()
    ]  # fmt: skip
    return (
        "## Noise studies\n\n"
        f"Summed tables of AK, CA, CT, MD, RI ({results.tables['noise_information']['data'][0]}), 1,000 draws per "
        "level in the full run. The printed gradient has the wrong sign before I; where I is small the spread it "
        "predicts is nearly the same, so the error shows only in tables with a strong association. Empty cells make "
        "the estimate biased at any noise, which no gradient predicts.\n\n"
        + table(
            ("table", "cells", "SNR", "I (bits)", "bias", "spread", "by (PMI − I)/n", "by −(PMI + I)/n"), rows
        )
        + "\n\n"
        + "\n\n".join(
            picture(name, text, figures)
            for name, text in (
                ("noise_bias.svg", "Error of mutual information against the signal-to-noise ratio"),
                ("noise_spread.svg", "Predicted over observed spread, both gradients"),
                ("noise_orders.svg", "Misordering of neighbours against its bound"),
            )
        )
    )


def audit(results: Results, figures: Sequence[str]) -> str:
    found = results.tables.get("audit")
    if found is None:
        return ""
    mean = found.group_by(["mode", "attack", "epsilon"], maintain_order=True).agg(
        pl.len().alias("audits"), pl.col("auc", "auc_theory", "tpr_at_1_percent", "tpr_theory").mean(),
        pl.col("epsilon_lower_bound").max(),
    )  # fmt: skip
    rows = [
        (
            line["mode"], line["attack"], f"{line['epsilon']:g}", line["audits"], f"{line['auc']:.4f}",
            f"{line['auc_theory']:.4f}", f"{line['tpr_at_1_percent']:.4f}", f"{line['tpr_theory']:.4f}",
            f"{line['epsilon_lower_bound']:.3f}",
        )
        for line in mean.sort("mode", "attack", "epsilon").to_dicts()
    ]  # fmt: skip
    scales = results.tables["noise_scales"]
    explained = [
        (
            line["task"], line["features"], line["printed"], f"{line['tables_counted']} = C({line['features'] + 2},2)",
            f"{line['sigma_counted']:.2f}", f"{line['tables_real']} = C({line['features'] + 1},2)",
            f"{line['sigma_real']:.2f}", f"{line['sigma_tight']:.2f}",
        )
        for line in scales.to_dicts()
    ]  # fmt: skip
    return (
        "## Privacy audit\n\n"
        f"{found.height} audits of 25,000 records and {found['trials'].max():,} targets inside and outside each, on "
        "the code that draws the noise of real releases. Means over tasks; the last column is the largest lower "
        "confidence bound (99.9%) on ε of any audit in the row.\n\n"
        + table(
            ("mode", "attack", "ε", "audits", "AUC", "theory", "TPR at 1%", "theory", "ε at least"), rows
        )
        + "\n\nThe paper's noise scales at ε = 1, δ = 1e-5, explained:\n\n"
        + table(
            ("task", "features K", "printed σ", "tables it counted", "RDP σ of these", "tables there are", "RDP σ",
             "tight σ"),
            explained,
        )
        + "\n\n"
        + "\n\n".join(
            picture(name, text, figures)
            for name, text in (
                ("audit_auc.svg", "AUC of the attack against ε"),
                ("audit_tpr.svg", "True positive rate at 1% false positives against ε"),
                ("audit_roc.svg", "ROC curves on log axes"),
            )
        )
    )  # fmt: skip
