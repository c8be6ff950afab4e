"""Alerts: what a reader must know before trusting a selection."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from ..estimation.estimates import Estimates
from ..objective.pfl import loss
from ..planning import Plan
from ..pool.pool import Pool
from ..search.selection import Selection
from .outcomes import TrainingOutcome
from .tables import AuditRow

#: ε above which the promise is called weak: a record may shift odds by more than e^3 ≈ 20.
WEAK_EPSILON = 3.0
#: δ above which the promise may fail for someone in ten thousand.
WEAK_DELTA = 1e-4
#: A member chosen in fewer redrawn pools than this owes its place to luck.
LUCK = 0.5
#: A member that moves the loss by more than this part of what all members move carries the selection.
HINGE = 0.75
#: Relative difference up to which two losses are the same.
SAME = 1e-6


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """Something the reader must know before trusting the rest."""

    level: Literal["stop", "warning", "note"]
    title: str
    text: str


def find_alerts(
    selection: Selection,
    *,
    pool: Pool | None,
    estimates: Estimates | None,
    audits: list[AuditRow],
    training: TrainingOutcome | None,
) -> list[Notice]:
    """All alerts, gravest first."""
    found = [
        *_privacy(pool.plan if pool else None, simulated=bool(pool and pool.simulated)),
        *_audits(audits),
    ]
    if pool is not None:
        found += [
            Notice(
                level="warning",
                title=f"release of {flag.client} is flagged",
                text=f"{flag.reason[0].upper()}{flag.reason[1:]}.",
            )
            for flag in pool.flags
        ]
        found += [
            Notice(
                level="warning" if alert.client in selection.clients else "note",
                title=f"release of {alert.client} is unusual",
                text=f"{alert.reason[0].upper()}{alert.reason[1:]}. Honest clients may be: look before you exclude.",
            )
            for alert in pool.alerts
        ]
        if selection.plan_digest not in (None, pool.plan.digest):
            found.append(
                Notice(
                    level="warning",
                    title="the releases answer another plan",
                    text=f"The selection was made under plan {str(selection.plan_digest)[:12]}, these releases answer "
                    f"{pool.plan.digest[:12]}.",
                )
            )
    if estimates is not None:
        found += _recomputed(estimates, selection)
    if pool is not None and estimates is not None:
        found += _tiny(estimates, pool.plan, selection)
    found += _selection(selection)
    if training is not None:
        found += _outcome(training)
    order = {"stop": 0, "warning": 1, "note": 2}
    return sorted(found, key=lambda alert: order[alert.level])


def _privacy(plan: Plan | None, *, simulated: bool) -> list[Notice]:
    if plan is None:
        return []
    if not plan.private:
        return [
            Notice(
                level="stop",
                title="not private",
                text="ε is infinite: the releases are exact counts. Do not use this set-up on data of people.",
            )
        ]
    found = []
    if simulated:
        found.append(
            Notice(
                level="stop",
                title="simulated noise",
                text="The noise came from a seeded generator and protects nobody; for experiments on public data only.",
            )
        )
    if plan.epsilon > WEAK_EPSILON:
        found.append(
            Notice(
                level="warning",
                title=f"weak promise, ε = {plan.epsilon:g}",
                text=f"One record may shift the odds of what is seen by up to e^{plan.epsilon:g}. "
                f"Values up to {WEAK_EPSILON:g} are easier to defend.",
            )
        )
    if plan.delta > WEAK_DELTA:
        found.append(
            Notice(
                level="warning",
                title=f"large δ = {plan.delta:g}",
                text="δ should be well below one over the number of records of a client.",
            )
        )
    return found


def _audits(audits: list[AuditRow]) -> list[Notice]:
    broken = [audit for audit in audits if not audit.ok]
    return [
        Notice(
            level="stop",
            title=f"the attack beats the promise at ε = {audit.epsilon}",
            text=f"Attack on {'all tables' if audit.attack == 'joint' else 'one table'}: AUC {audit.auc:.3f} where "
            f"theory allows {audit.auc_theory:.3f}. Do not release with this build.",
        )
        for audit in broken
    ]


def _recomputed(estimates: Estimates, selection: Selection) -> list[Notice]:
    """The loss computed again from the releases must be the selection's."""
    if selection.objective != "pfl":
        return []
    at = {name: i for i, name in enumerate(estimates.clients)}
    again = loss(estimates, sorted(at[name] for name in selection.clients), selection.weights)
    if abs(again - selection.loss) <= SAME * max(1.0, abs(again)):
        return []
    return [
        Notice(
            level="warning",
            title="these releases give another loss",
            text=f"The selection states {selection.loss:.6f}, the releases at hand give {again:.6f}: they are not the "
            "ones it was made from, or it was made by another version.",
        )
    ]


def _tiny(estimates: Estimates, plan: Plan, selection: Selection) -> list[Notice]:
    """Clients whose average cell is smaller than its noise, in more than half of the tables."""
    if not plan.private:
        return []
    need = float(
        np.median([a * b * sigma for (a, b), sigma in zip(plan.layout.shapes, plan.sigmas, strict=True)])
    )
    small = [name for name, total in zip(estimates.clients, estimates.totals, strict=True) if total < need]
    if not small:
        return []
    chosen = [name for name in selection.clients if name in set(small)]
    listed = ", ".join(small[:8]) + (f" and {len(small) - 8} more" if len(small) > 8 else "")
    chief = f" Chosen among them: {', '.join(chosen)}." if chosen else " None of them is chosen."
    return [
        Notice(
            level="warning" if chosen else "note",
            title=f"{len(small)} client{'s are' if len(small) > 1 else ' is'} small for this noise",
            text=f"With fewer than about {need:,.0f} records the noise exceeds the average cell of most tables: "
            f"{listed}.{chief}",
        )
    ]


def _selection(selection: Selection) -> list[Notice]:
    found = []
    if selection.status == "interrupted":
        found.append(Notice(level="warning", title="the search was interrupted", text=selection.sentence))
    lucky = [c for c in selection.clients if selection.frequency and selection.frequency.get(c, 0.0) < LUCK]
    if lucky:
        shares = ", ".join(f"{name} {selection.frequency.get(name, 0.0):.0%}" for name in lucky)
        found.append(
            Notice(
                level="warning",
                title=f"{len(lucky)} of {selection.k} members could be others",
                text=f"Chosen in fewer than half of {selection.redraws} redraws of the noise: {shares}. "
                "The federation's loss is more certain than its membership.",
            )
        )
    return found + _hinge(selection)


def _hinge(selection: Selection) -> list[Notice]:
    """One member whose leaving would move the loss far more than all others': a giant, or a fabrication."""
    moves = {part.client: abs(part.leave_one_out or 0.0) for part in selection.contributions}
    total = sum(moves.values())
    if len(moves) < 3 or total <= 0:
        return []
    client, most = max(moves.items(), key=lambda item: item[1])
    if most <= HINGE * total:
        return []
    return [
        Notice(
            level="note",
            title=f"the selection hinges on {client}",
            text=f"{most / total:.0%} of what single members do to the loss is due to {client}. Look at its data, and "
            f"compare with the choice without it: fedwise select … --exclude {client}.",
        )
    ]


def _outcome(training: TrainingOutcome) -> list[Notice]:
    """Says so when a baseline did better."""
    found = []
    for metric, words, larger in (
        ("balanced_accuracy", "balanced accuracy", True),
        ("eod", "equal opportunity gap", False),
    ):
        rows = [measure for measure in training.final if measure.metric == metric]
        if len(rows) < 2:
            continue
        mine = rows[0]
        better = [row for row in rows[1:] if (row.value > mine.value if larger else row.value < mine.value)]
        if better:
            said = ", ".join(f"{row.label} {row.value:.4f}" for row in better)
            found.append(
                Notice(
                    level="note",
                    title=f"a baseline has the better {words}",
                    text=f"{mine.label} reached {mine.value:.4f}; better: {said}.",
                )
            )
    return found
