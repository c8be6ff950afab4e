"""Promise: what a plan promises about any single record, in words and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from ..planning import Plan

RELATION = (
    "Two data sets are neighbours if one holds exactly one record more than the other: the promise covers the "
    "presence or absence of any single record. It holds whatever the reader already knows, and for everything "
    "computed from the releases afterwards, this page included."
)


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """The promise, in words and numbers."""

    label: Literal["private", "simulated", "not private"]
    promise: str
    relation: str
    epsilon: float | Literal["inf"]
    delta: float
    tables: int
    cells: int
    noise_least: float
    noise_most: float
    calibration: str
    allocation: str
    left: list[str]
    stayed: list[str]
    training: list[str]


def promise_of(plan: Plan | None, *, simulated: bool, training: Sequence[str] = ()) -> Promise:
    """The promise of a plan in words and numbers."""
    if plan is None:
        return Promise(
            label="private", promise="The releases are not part of this report; their plan states the promise.",
            relation=RELATION, epsilon="inf", delta=0.0, tables=0, cells=0, noise_least=0.0, noise_most=0.0,
            calibration="", allocation="", left=[], stayed=[], training=list(training),
        )  # fmt: skip
    noise = "with noise in every cell" if plan.private else "as exact counts, without any noise"
    return Promise(
        label="not private" if not plan.private else "simulated" if simulated else "private",
        promise=plan.promise,
        relation=RELATION if plan.private else "There is no promise about any record.",
        epsilon=plan.promise_epsilon,
        delta=plan.delta,
        tables=len(plan.tables),
        cells=plan.layout.cells,
        noise_least=float(plan.sigmas.min()),
        noise_most=float(plan.sigmas.max()),
        calibration=plan.calibration,
        allocation=plan.allocation,
        left=[
            f"Counts for {len(plan.tables)} pairs of {len(plan.schema.columns)} public columns, {noise}.",
            "The client's name, and the plan it answered.",
        ],
        stayed=[
            "Every record.",
            "Every exact count, the number of records included."
            if plan.private
            else "Columns outside the plan.",
            "Which categories occur: all tables have the public shape of the schema.",
        ],
        training=list(training),
    )
