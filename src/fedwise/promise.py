"""Promise: what a plan promises, and what a reader must know about its schema, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from .schema.schema import Role, Schema


def promise_in_words(
    epsilon: float, delta: float, *, tables: int, stages: Sequence[float] = (), score: bool = False
) -> str:
    """The promise of so many tables together; `stages` has the total ε after each stage, the second of a score."""
    if math.isinf(epsilon):
        return (
            "NO PRIVACY: epsilon is infinite, the tables are exact. Anyone who sees this release may learn "
            "whether a given person is in the data."
        )
    said = (
        f"Adding or removing any one record changes the probability of any outcome of this release by a factor "
        f"of at most e^{epsilon:g} = {math.exp(min(epsilon, 700)):.3g}, except with probability "
        f"{delta:g} (({epsilon:g}, {delta:g})-differential privacy, all {tables} tables together)."
    )
    if not stages:
        return said
    totals = ", ".join(f"{total:g}" for total in stages)
    said = f"{said} In {len(stages)} stages: the total epsilon after each is {totals}; "
    if score:
        return (
            f"{said}the second asks for one number, the sum of a score between -1 and 1 for each record; only clients "
            "on a shortlist are asked for the tables again."
        )
    return f"{said}only clients on a shortlist are asked beyond the first."


def schema_notes(schema: Schema, shares: Mapping[str, float]) -> list[str]:
    """Several targets and their shares of the budget, a codebook, no sensitive attribute: a sentence each."""
    notes = []
    if len(schema.targets) > 1:
        told = ", ".join(f"{name} {part:.0%}" for name, part in shares.items() if name)
        notes.append(
            f"{len(schema.targets)} targets share one budget, which is spent once: {told} of the precision, "
            f"tables that all use {shares['']:.0%}"
        )
    if schema.codebook:
        notes.append(f"features of codebook {schema.codebook[:12]}: every client makes them with the same")
    if schema.columns[-1].role == Role.JOINT:
        names = ", ".join(part.name for part in schema.columns[-1].parts)
        notes.append(
            f"'{schema.columns[-1].name}' is one column of all combinations of {names}, counted with each feature"
        )
    if not schema.sensitive:
        notes.append("no sensitive attribute: nothing about fairness is asked, chosen or reported")
    return notes
