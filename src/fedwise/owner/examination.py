"""Examination: an owner's file looked at as a release would. Nothing is released and nothing is charged."""

from __future__ import annotations

import numpy as np
import polars as pl

from ..errors import DataError, FedwiseError
from ..files import shorten
from ..planning import Plan
from ..schema.codes import encode_column
from ..schema.frame import FrameLike, column_names, read
from ..schema.rule import Rule
from ..schema.schema import Schema, near_miss
from .answer import check as check_plan
from .archive import Archive
from .column_findings import find_in_column, tolerant
from .findings import Finding, Findings, from_error, problem, warning
from .ledger import Ledger
from .strength import told

#: Rows that are copies of others, as a share, from which on they are mentioned.
_COPIES = 0.02
#: An ε above this protects little.
_WEAK = 10.0


def check(
    plan: Plan,
    frame: FrameLike,
    *,
    client: str | None = None,
    ledger: Ledger | None = None,
    copies: bool = True,
) -> Findings:
    """Look at rows as a release would, report everything at once, release nothing and charge nothing.

    Parameters
    ----------
    plan
        The request that would be answered.
    frame
        The rows: a frame, or the path of a file.
    client, ledger
        Where given, the name and the budget are checked too.
    copies
        Whether to look for repeated rows, which reads every column.

    Returns
    -------
    findings
        For the owner alone: they hold counts and values of the rows.
    """
    found = _in_plan(plan, client, ledger)
    schema = plan.schema
    try:
        there = column_names(frame, list(schema.wanted_cells()))
        absent = _absent(schema, there)
        # Columns under another spelling are read under that one, so that their values are checked too.
        renamed = {near: name for name in schema.absent_columns(there) if (near := near_miss(name, there))}
        rows = schema.read(read(frame).rename(renamed) if renamed else frame)
        every = read(frame) if copies else None
    except FedwiseError as error:
        return Findings([*found, from_error(error)])
    found += absent
    kept = _filtered(schema, rows, found)
    for part in (part for column in schema.columns for part in column.parts):
        found += find_in_column(part, kept)
    if kept.height:
        found += _in_target(schema, kept)
        found += _in_strength(plan, kept.height)
        if every is not None:
            found += _in_copies(every)
    return Findings(list(dict.fromkeys(found)), rows=rows.height, kept=kept.height)


def _in_plan(plan: Plan, client: str | None, ledger: Ledger | None) -> list[Finding]:
    try:
        check_plan(plan, client="client" if client is None else client, no_privacy=True)
    except FedwiseError as error:
        return [from_error(error)]
    found = plan_warnings(plan)
    cells = f"{len(plan.tables)} tables of {plan.layout.cells} counts with noise"
    if not plan.private:
        cure = "ask for a finite epsilon, or consent with --no-privacy"
        found.append(warning("the plan has no privacy: it asks for exact counts", cure=cure))
        cells = f"{len(plan.tables)} tables of {plan.layout.cells} EXACT counts"
    found.append(Finding("note", f"what would be sent: {cells}, the plan and the client's name; no row"))
    if (
        ledger is not None
        and plan.private
        and (client is None or Archive(ledger.path).find(plan, client) is None)
    ):
        left = ledger.balance().remaining
        if left < plan.epsilon * (1 - 1e-9):
            says = f"the ledger has too little left for epsilon {plan.epsilon:g}"
            found.append(problem(says, f"{left:.4g} left", "fedwise budget shows what it was spent on"))
    return found


def plan_warnings(plan: Plan) -> list[Finding]:
    """What is unusual about a request, whatever the rows."""
    found = []
    if plan.private and plan.epsilon > _WEAK:
        says = f"epsilon {plan.epsilon:g} protects little; 1 is usual, and {_WEAK:g} already weak"
        found.append(warning(says, cure="use a plan with a smaller epsilon"))
    if not plan.schema.sensitive:
        says = "the schema has no sensitive column, so fairness plays no part in the choice"
        found.append(warning(says, cure='give a column role = "sensitive" if fairness matters'))
    return found


def _absent(schema: Schema, there: list[str]) -> list[Finding]:
    found = []
    for name in schema.absent_columns(there):
        near = near_miss(name, there)
        if near is None:
            cure = 'add it, or name the column that holds it: source = ["..."] in the schema'
            found.append(problem(f"column '{name}' is missing from the data", cure=cure))
        else:
            cure = f'rename it, or write in the schema: source = ["{shorten(near)}"]'
            found.append(problem(f"column '{name}' is missing, but there is '{shorten(near)}'", cure=cure))
    return found


def _filtered(schema: Schema, rows: pl.DataFrame, found: list[Finding]) -> pl.DataFrame:
    """The rows that satisfy all rules of the filter; what is wrong with a rule is added to `found`."""
    kept = rows
    if not rows.height:
        found.append(problem("the data has no rows", cure="check the file; nothing is charged for it"))
    for text in schema.where:
        rule = Rule.parse(text)
        if any(name not in rows.columns for name in rule.columns):
            continue  # reported as absent
        try:
            yes, missing = rule.evaluate(kept)
        except DataError as error:
            found.append(from_error(error))
            continue
        if kept.height and not yes.any():
            figures = (
                f"{int(missing.sum())} of {kept.height} rows have no value there" if missing.any() else ""
            )
            cure = "check the rule under 'where' and its unit; nothing is charged for it"
            found.append(problem(f"no row satisfies the filter '{text}'", figures, cure))
        kept = kept.filter(pl.Series(yes))
    return kept


def _in_target(schema: Schema, rows: pl.DataFrame) -> list[Finding]:
    found = []
    for target in (schema.columns[position] for position in schema.targets):
        try:
            codes = encode_column(tolerant(target), rows)
        except DataError:
            continue  # reported with its column
        if len(np.unique(codes)) == 1:
            says = f"the target '{target.name}' has one class only"
            found.append(warning(says, cure="check the rule or levels of the target"))
    return found


def _in_strength(plan: Plan, rows: int) -> list[Finding]:
    """What the release tells at this ε, and whether δ fits the number of rows."""
    found: list[Finding] = []
    if not plan.private:
        return found
    if plan.delta * rows > 1:
        says = f"delta {plan.delta:g} is larger than one in the number of rows"
        found.append(warning(says, f"{rows} rows", "ask for a plan with a smaller delta"))
    strength = told(plan, rows)
    figures = (
        f"{rows} rows: the target's rate within ±{strength.rate:.1%}, noise above the average count in "
        f"{strength.drowned} of {len(plan.tables)} tables"
    )
    if strength.weak:
        cure = "more rows, fewer levels or a larger epsilon would tell more"
        found.append(warning("the data is small for this noise: its release tells little", figures, cure))
    else:
        found.append(Finding("note", "what the release would tell, 95% of the time", figures))
    return found


def _in_copies(every: pl.DataFrame) -> list[Finding]:
    try:
        copies = every.height - every.n_unique()
    except pl.exceptions.PolarsError:
        return []  # columns of nested values, which cannot be compared
    if every.width < 3 or copies < _COPIES * every.height:
        return []
    figures = f"{copies} of {every.height}"
    return [
        warning(
            "rows of the file are exact copies of others", figures, "check whether a file was appended twice"
        )
    ]
