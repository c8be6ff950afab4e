"""Instruments: how often rule, error bars, chances and audit are right, from the tables that measured it."""

from __future__ import annotations

import polars as pl
from comparisons import TITLES
from results import Results
from writing import sections, table

NAMES = {
    "accuracy": "accuracy", "f1": "F1", "eod": "EOD", "spd": "SPD", "auc": "AUC", "loss": "log loss",
    "balanced_accuracy@rate": "balanced accuracy, matched", "eod@rate": "EOD, matched", "spd@rate": "SPD, matched",
}  # fmt: skip
#: What an outside review measured for the rule of version 0.1.0, by a simulation of its own.
REVIEW = {"accuracy": 0.73, "f1": 0.91, "eod": 0.69, "spd": 0.66}


def null(results: Results) -> str:
    """False verdicts of the old and the new rule when random federations are taken for chosen ones."""
    found = results.tables.get("null")
    if found is None:
        return ""
    rows = []
    for metric in ("accuracy", "f1", "eod", "spd"):
        old = found.filter((pl.col("rule") == "old") & (pl.col("claim") == metric))
        new = found.filter((pl.col("rule") == "new") & (pl.col("claim") == metric))
        if old.height:
            cells = [f"{new[name][0]:.3f}" if new.height else "–" for name in ("supported", "contradicted")]
            rows.append((NAMES[metric], f"{old['supported'][0]:.2f}", f"{REVIEW[metric]:.2f}", *cells))
    most = found.filter(pl.col("rule").str.starts_with("new") & pl.col("supported").is_not_null())[
        "either"
    ].max()
    return (
        "With random federations in the place of chosen ones (`experiments/null.py`), the rule of version 0.1.0 found "
        "support for most claims; the new one speaks falsely, on either side, in at most "
        f"{most:.1%} of claims.\n\n"
        + table(
            (
                "claim",
                "old rule: supported",
                "review's figure",
                "new rule: supported",
                "new rule: contradicted",
            ),
            rows,
        )
    )


def render(results: Results) -> str:
    """Coverage of error bars, chance of a better swap, power of the audit: whatever was measured."""
    parts = [_coverage(results), _swaps(results), _power(results)]
    there = [part for part in parts if part]
    return sections(["## Error bars, certificate and audit", *there]) if there else ""


def _coverage(results: Results) -> str:
    """How often the interval of a *selected* federation holds its true loss."""
    found = results.tables.get("coverage")
    if found is None or not {"kind", "epsilon", "low", "high", "true"} <= set(found.columns):
        return _stored(found, "Coverage of the interval for the selected federation:")
    chosen = found.filter(pl.col("kind") == "selected").with_columns(
        pl.col("true").is_between("low", "high").alias("held"),
        ((pl.col("estimated") - pl.col("true")).abs() <= 1.96 * pl.col("std_error")).alias("plain"),
    )
    by_epsilon = (
        chosen.group_by("epsilon").agg(pl.len().alias("n"), pl.col("held", "plain").mean()).sort("epsilon")
    )
    by_task = chosen.group_by("task").agg(pl.col("held").mean()).sort("held")
    rows = [
        (f"{line['epsilon']:g}", line["n"], f"{line['held']:.0%}", f"{line['plain']:.0%}")
        for line in by_epsilon.to_dicts()
    ]
    return (
        "The 95% interval of a selection is corrected for having been selected; loss ± 1.96 standard errors is not. "
        "Both against the true loss (`benchmarks/coverage.py`); the lowest coverage of a task is "
        f"{by_task['held'][0]:.0%} ({TITLES.get(by_task['task'][0], by_task['task'][0])}).\n\n"
        + table(("ε", "selections", "interval covers", "plain ± covers"), rows)
    )


def _swaps(results: Results) -> str:
    """Is the stated chance of a better swap the share of selections that had one?"""
    found = results.tables.get("swap_chance")
    if found is None or not {"epsilon", "chance", "better"} <= set(found.columns):
        return _stored(found, "Chance that some swap is truly better, stated and found:")
    by = found.group_by("epsilon").agg(pl.len().alias("n"), pl.col("chance", "better").mean()).sort("epsilon")
    rows = [
        (f"{line['epsilon']:g}", line["n"], f"{line['chance']:.2f}", f"{line['better']:.2f}")
        for line in by.to_dicts()
    ]
    return (
        "A selection states the chance that some single swap is truly better (`benchmarks/certificate.py`):\n\n"
        + table(("ε", "selections", "stated", "found"), rows)
    )


def _power(results: Results) -> str:
    """How often an audit finds noise that is too small."""
    found = results.tables.get("audit_power")
    if found is None or not {"epsilon", "factor", "epsilon_bound", "mu_bound"} <= set(found.columns):
        return _stored(found, "Share of audits that find noise that is too small:")
    rows = []
    for epsilon in sorted(set(found["epsilon"])):
        here = {line["factor"]: line for line in found.filter(pl.col("epsilon") == epsilon).to_dicts()}
        cells = [("mu_bound", 1.0), ("mu_bound", 1.5), ("epsilon_bound", 1.5), ("epsilon_bound", 4.0)]
        rows.append((f"{epsilon:g}", *(f"{here[f][name]:.0%}" if f in here else "–" for name, f in cells)))
    return (
        f"Share of {found['audits'].max()} audits that find noise too small by a factor, by the new bound on μ and by "
        "the bound on ε of version 0.1.0:\n\n"
        + table(("ε", "μ, right noise", "μ, factor 1.5", "old, factor 1.5", "old, factor 4"), rows)
    )


def _stored(found: pl.DataFrame | None, text: str, most: int = 20) -> str:
    """A small stored table as it is."""
    if found is None or found.height > most:
        return ""
    rows = [tuple(_cell(value) for value in row) for row in found.iter_rows()]
    return text + "\n\n" + table(found.columns, rows)


def _cell(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else "–" if value is None else str(value)
