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
    old = found.filter((pl.col("rule") == "old") & (pl.col("evidence") == "24 random federations"))
    was = dict(zip(old["claim"], old["supported"], strict=True))
    shown = ", ".join(f"{NAMES[metric]} {was[metric]:.2f}" for metric in REVIEW if metric in was)
    most = found.filter(pl.col("rule").str.starts_with("new") & pl.col("supported").is_not_null())[
        "either"
    ].max()
    return (
        "With random federations in the place of chosen ones (`experiments/null.py`), the new rule speaks falsely, on "
        f"either side, in at most {most:.1%} of claims. The rule of version 0.1.0 found false support with these "
        f"chances: {shown}; an outside review had found {', '.join(f'{v:.2f}' for v in REVIEW.values())}."
    )


def render(results: Results) -> str:
    """Coverage of error bars, chance of a better swap, power of the audit: whatever was measured."""
    covered, text = _coverage(results)
    swaps, more = _swaps(results)
    columns = {"interval covers": 0, "± covers": 1} if covered else {}
    shown = {name: {e: cells[at] for e, cells in covered.items()} for name, at in columns.items()}
    shown |= {name: {e: cells[at] for e, cells in swaps.items()} for name, at in _SWAPS.items() if swaps}
    every = sorted({*covered, *swaps})
    rows = [(f"{e:g}", *(cells.get(e, "–") for cells in shown.values())) for e in every]
    body = [text, more, table(("ε", *shown), rows) if rows else "", _power(results)]
    there = [part for part in body if part]
    return sections(["## Error bars, certificate and audit", *there]) if there else ""


_SWAPS = {"better swap, stated": 0, "better swap, found": 1}
#: By ε: cells of the table.
Cells = dict[float, tuple[str, str]]


def _coverage(results: Results) -> tuple[Cells, str]:
    """How often the interval of a *selected* federation holds its true loss."""
    found = results.tables.get("coverage")
    if found is None or not {"kind", "epsilon", "low", "high", "true"} <= set(found.columns):
        return {}, _stored(found, "Coverage of the interval for the selected federation:")
    chosen = found.filter(pl.col("kind") == "selected").with_columns(
        pl.col("true").is_between("low", "high").alias("held"),
        ((pl.col("estimated") - pl.col("true")).abs() <= 1.96 * pl.col("std_error")).alias("plain"),
    )
    by = chosen.group_by("epsilon").agg(pl.col("held", "plain").mean())
    least = chosen.group_by("task").agg(pl.col("held").mean()).sort("held").row(0)
    return {e: (f"{held:.0%}", f"{plain:.0%}") for e, held, plain in by.iter_rows()}, (
        "A selection's 95% interval is corrected for having been selected, the ± is not (benchmarks/error_bars.py); "
        f"the interval covers least on {TITLES.get(least[0], least[0])}: {least[1]:.0%}."
    )


def _swaps(results: Results) -> tuple[Cells, str]:
    """Is the stated chance of a better swap the share of selections that had one?"""
    found = results.tables.get("swap_chance")
    if found is None or not {"epsilon", "chance", "better"} <= set(found.columns):
        return {}, _stored(found, "Chance that some swap is truly better, stated and found:")
    by = found.group_by("epsilon").agg(pl.col("chance", "better").mean())
    return {e: (f"{stated:.2f}", f"{true:.2f}") for e, stated, true in by.iter_rows()}, (
        "A selection also states the chance that some single swap is truly better (benchmarks/certificate.py)."
    )


def _power(results: Results) -> str:
    """How often an audit finds noise that is too small."""
    found = results.tables.get("audit_power")
    if found is None or not {"epsilon", "factor", "epsilon_bound", "mu_bound"} <= set(found.columns):
        return _stored(found, "Share of audits that find noise that is too small:")
    here = {line["factor"]: line for line in found.filter(pl.col("epsilon") == 1.0).to_dicts()}
    if not {1.0, 1.5} <= set(here):
        return ""
    return (
        f"At ε = 1 an audit finds noise too small by a factor of 1.5 in {here[1.5]['mu_bound']:.0%} of "
        f"{here[1.5]['audits']} runs by the new bound on μ, and right noise wrongly in {here[1.0]['mu_bound']:.0%}. "
        f"The bound on ε of version 0.1.0 finds it in {here[1.5]['epsilon_bound']:.0%}."
    )


def _stored(found: pl.DataFrame | None, text: str, most: int = 20) -> str:
    """A small stored table as it is."""
    if found is None or found.height > most:
        return ""
    rows = [tuple(_cell(value) for value in row) for row in found.iter_rows()]
    return text + "\n\n" + table(found.columns, rows)


def _cell(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else "–" if value is None else str(value)
