"""Promise: what is promised about any single record, in words and numbers, and what is not."""

from __future__ import annotations

from typing import Literal

import msgspec

from ..planning import Plan
from ..pool.pool import Pool
from ..search.selection import Selection
from .labels import RELEASES, TRAINING, Label, label_of
from .spending import spending_sentences

_NEIGHBOURS = (
    "Two data sets are neighbours if one holds exactly one record more than the other: the promise covers the "
    "presence or absence of any single record. It holds whatever the reader already knows, and for everything "
    "computed from the releases afterwards"
)
_ALONE = f"{_NEIGHBOURS}, this page included."
_TRAINED = (
    f"{_NEIGHBOURS}. It does not cover the training, nor the metrics on this page that were measured on clients' "
    "held-out rows."
)
_NONE = "There is no promise about any record."
_UNKNOWN = "Name the releases with --releases to have their noise checked and their promise shown in full."


class TrainingPrivacy(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a training was private, and what it cost, in sentences."""

    label: Label
    notes: list[str] = []

    @property
    def sentences(self) -> list[str]:
        """What the label means, then the costs; a private training is described by its costs."""
        return [*([] if self.label == "private" and self.notes else [TRAINING[self.label]]), *self.notes]


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """The promise, in words and numbers.

    `label` is that of the releases and of everything made from them, `training_label` that of the training
    shown beside them, if any. `epsilon` and `delta` are ``None`` where no plan is at hand.
    """

    label: Label
    training_label: Label | None
    promise: str
    relation: str
    epsilon: float | Literal["inf"] | None
    delta: float | None
    tables: int
    cells: int
    noise_least: float
    noise_most: float
    calibration: str
    allocation: str
    left: list[str]
    stayed: list[str]
    training: list[str]


def promise_of(
    pool: Pool | None,
    selection: Selection | None = None,
    *,
    plan: Plan | None = None,
    training: TrainingPrivacy | None = None,
) -> Promise:
    """What a report or the explorer may say about privacy.

    Parameters
    ----------
    pool, selection
        The releases, and what was made from them.
    plan
        The plan of the selection, where the releases are not at hand.
    training
        The privacy of the training that is shown too.
    """
    label = label_of(pool, selection, plan=plan)
    plan = pool.asked if pool is not None else plan
    costs = training.sentences if training is not None else []
    said = training.label if training is not None else None
    if plan is None:
        known = (
            RELEASES[label] if label != "not checked" else f"{RELEASES[label]} No plan states ε and δ here."
        )
        return Promise(
            label=label, training_label=said, promise=known, relation=_UNKNOWN if label == "not checked" else _NONE,
            epsilon="inf" if label == "not private" else None, delta=None, tables=0, cells=0, noise_least=0.0,
            noise_most=0.0, calibration="", allocation="", left=[], stayed=[], training=costs,
        )  # fmt: skip
    covered = _ALONE if training is None else _TRAINED
    return Promise(
        label=label,
        training_label=said,
        promise=_promise(plan, label),
        relation={"private": covered, "not charged": covered, "not checked": _UNKNOWN}.get(label, _NONE),
        epsilon=plan.promise_epsilon,
        delta=plan.delta,
        tables=len(plan.tables),
        cells=plan.layout.cells,
        noise_least=float(plan.sigmas.min()),
        noise_most=float(plan.sigmas.max()),
        calibration=plan.calibration,
        allocation=plan.allocation,
        left=[*_left(plan, label), *(spending_sentences(pool) if pool is not None else [])],
        stayed=_stayed(label),
        training=costs,
    )


def _promise(plan: Plan, label: Label) -> str:
    """The plan's sentence, introduced by what became of it."""
    if label == "private" or not plan.private:
        return plan.promise
    if label == "not private":
        return (
            f"{RELEASES[label]} The plan at hand promises more, but the selection was made from exact counts."
        )
    if label == "not charged":
        return f"{plan.promise} {RELEASES[label]}"
    return f"{RELEASES[label]} What the plan promises with real noise: {plan.promise}"


def _left(plan: Plan, label: Label) -> list[str]:
    noise = {
        "private": "with noise in every cell",
        "simulated": "with simulated noise in every cell, which anyone who knows the seed can remove",
        "not private": "as exact counts, without any noise",
        "not charged": "with noise in every cell, not all of it charged to a ledger",
        "not checked": "as the plan asks; whether they carry its noise was not checked",
    }[label]
    what = "pairs" if plan.folding is None else "pairs and larger sets"
    return [
        f"Counts for {len(plan.tables)} {what} of {len(plan.as_pairs.schema.columns)} public columns, {noise}.",
        "The client's name, and the plan it answered.",
    ]


def _stayed(label: Label) -> list[str]:
    """Exact and simulated tables show how many records there are and which categories occur."""
    if label == "not checked":
        return []
    if label not in ("private", "not charged"):
        return ["The records themselves.", "Columns outside the plan."]
    return [
        "Every record.",
        "Every exact count, the number of records included.",
        "Which categories occur: all tables have the public shape of the schema.",
    ]
