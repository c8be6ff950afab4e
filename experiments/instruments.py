"""Instruments: how often rule, error bars, chances and audit are right, from the tables that measured it."""

from __future__ import annotations

import polars as pl
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
    parts = [
        _stored(results, name, text)
        for name, text in (
            ("coverage", "Coverage of the error bar for the selected federation."),
            ("swap_chance", "Chance of a better swap: predicted and found."),
            ("audit_power", "Share of audits that find noise that is too small."),
        )
    ]
    there = [part for part in parts if part]
    return sections(["## Error bars, certificate and audit", *there]) if there else ""


def _stored(results: Results, name: str, text: str) -> str:
    """A small stored table as it is."""
    found = results.tables.get(name)
    if found is None:
        return ""
    rows = [tuple(_cell(value) for value in row) for row in found.iter_rows()]
    return text + "\n\n" + table(found.columns, rows)


def _cell(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else "–" if value is None else str(value)
