"""Alerts: what a reader must know before trusting a selection. Each function looks for one kind of trouble."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np

from ..estimation.estimates import Estimates
from ..objective.pfl import loss
from ..planning import Plan
from ..pool.card import CLIENT_FALSE_DOUBT, Card
from ..pool.pool import Pool
from ..search.selection import Selection
from .labels import RELEASES, TRAINING, Label
from .outcomes import TrainingOutcome
from .tables import AuditRow

#: ε above which the promise is called weak: a record may shift odds by more than e^3 ≈ 20.
WEAK_EPSILON = 3.0
#: δ above which the promise may fail for someone in ten thousand.
WEAK_DELTA = 1e-4
#: A member chosen in fewer redrawn pools than this may owe its place to the noise.
LUCK = 0.5
#: The selection depends on a member that moves the loss by more than this part of what all members move.
DOMINANT = 0.75
#: Relative difference up to which two losses are the same.
SAME = 1e-6


Level = Literal["stop", "warning", "note"]


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """Something the reader must know before trusting the rest."""

    level: Level
    title: str
    text: str


def no_promise(label: Label) -> list[Notice]:
    """Releases that protect nobody, or whose cost nobody counts."""
    titles = {"not private": "not private", "simulated": "simulated noise", "not charged": "not charged"}
    level: Level = "warning" if label == "not charged" else "stop"
    return [Notice(level=level, title=titles[label], text=RELEASES[label])] if label in titles else []


def weak_promise(plan: Plan) -> list[Notice]:
    """An ε or δ that is hard to defend."""
    found = []
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


def training_privacy(label: Label) -> list[Notice]:
    """A training that protects nobody."""
    titles = {"not private": "training is not private", "simulated": "the noise of training is simulated"}
    if label not in titles:
        return []
    return [Notice(level="warning", title=titles[label], text=TRAINING[label])]


def screened_releases(selection: Selection, pool: Pool) -> list[Notice]:
    """Releases that fail the screen, unusual ones, and releases of another plan."""
    found = [
        Notice(level="warning", title=f"release of {flag.client} is flagged", text=_sentence(flag.reason))
        for flag in pool.flags
    ]
    found += [
        Notice(
            level="warning" if alert.client in selection.clients else "note",
            title=f"release of {alert.client} is unusual",
            text=f"{_sentence(alert.reason)} An honest client may be unusual too: look at it before you exclude it.",
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
    return found


def noted_by_search(selection: Selection, *, releases: bool) -> list[Notice]:
    """Limits that were not kept; and where the releases are not at hand, what the selection says about them."""
    found = []
    for flag in selection.flags:
        head, _, rest = flag.partition(": ")
        about_release = head.startswith("flagged release")
        if head in ("not private", "simulated") or (about_release and releases):
            continue
        found.append(Notice(level="warning", title=head, text=_sentence(rest or head)))
    for alert in selection.alerts:
        head, _, rest = alert.partition(": ")
        if not head.startswith("release of "):
            found.append(Notice(level="note", title=head, text=_sentence(rest or head)))
        elif not releases:
            found.append(Notice(level="note", title=f"{head} is unusual", text=_sentence(rest or head)))
    return found


def spoilt_records(selection: Selection, cards: Mapping[str, Card]) -> list[Notice]:
    """Clients whose quality card accuses them: members first of all, the others as a note."""
    found = [
        Notice(
            level="warning" if name in selection.clients else "note",
            title=f"the records of {name} look spoilt",
            text=f"{_sentence(card.verdict)} An honest client unlike all others can look so too: ask its owner.",
        )
        for name, card in cards.items()
        if card.suspect
    ]
    doubtful = [name for name in selection.clients if name in cards and cards[name].doubtful]
    doubtful = [name for name in doubtful if not cards[name].suspect]
    if doubtful:
        found.append(
            Notice(
                level="note",
                title=f"quality of {', '.join(doubtful)} is in doubt",
                text=f"Of honest clients {CLIENT_FALSE_DOUBT:.0%} are by chance; see fedwise inspect --quality.",
            )
        )
    return found


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}." if text else ""


def broken_audits(audits: list[AuditRow]) -> list[Notice]:
    """Attacks that beat the promise."""
    broken = [audit for audit in audits if not audit.ok]
    return [
        Notice(
            level="stop",
            title=f"the attack beats the promise at ε = {audit.epsilon}",
            text=f"Attack on {audit.target}: AUC {audit.auc:.3f} where theory allows {audit.auc_theory:.3f}. "
            + "".join(f"{_sentence(found)} " for found in audit.findings)
            + "Do not release with this build.",
        )
        for audit in broken
    ]


def other_loss(estimates: Estimates, selection: Selection) -> list[Notice]:
    """The loss computed again from the releases must be the selection's."""
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


def small_clients(estimates: Estimates, plan: Plan, selection: Selection) -> list[Notice]:
    """Clients whose average cell is smaller than its noise, in more than half of the tables."""
    cells = np.array([a * b for a, b in plan.layout.shapes])
    needs = np.median(cells * estimates.sigmas, axis=1)
    small = [
        name
        for name, total, need in zip(estimates.clients, estimates.totals, needs, strict=True)
        if total < need
    ]
    if not small:
        return []
    need = float(needs.max())
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


def interrupted_search(selection: Selection) -> list[Notice]:
    """A search that was stopped."""
    if selection.status != "interrupted":
        return []
    return [Notice(level="warning", title="the search was interrupted", text=selection.sentence)]


def members_by_luck(selection: Selection) -> list[Notice]:
    """Members that the search would not choose with other noise."""
    lucky = [name for name in selection.clients if selection.frequency.get(name, 0.0) < LUCK]
    if not lucky:
        return []
    shares = ", ".join(f"{name} {selection.frequency.get(name, 0.0):.0%}" for name in lucky)
    return [
        Notice(
            level="warning",
            title=f"{len(lucky)} of {selection.k} members could be others",
            text=f"Chosen in fewer than half of {selection.redraws} redraws of the noise: {shares}. "
            "The federation's loss is more certain than its membership.",
        )
    ]


def dominant_member(selection: Selection) -> list[Notice]:
    """One member that moves the loss far more than all others: it may be very large, or its data made up."""
    moves = {part.client: abs(part.leave_one_out or 0.0) for part in selection.contributions}
    total = sum(moves.values())
    if len(moves) < 3 or total <= 0:
        return []
    client, most = max(moves.items(), key=lambda item: item[1])
    if most <= DOMINANT * total:
        return []
    return [
        Notice(
            level="note",
            title=f"the selection depends on {client}",
            text=f"{most / total:.0%} of what single members do to the loss is due to {client}. Look at its data, and "
            f"compare with the choice without it: fedwise select … --exclude {client}.",
        )
    ]


def better_baselines(training: TrainingOutcome) -> list[Notice]:
    """Baselines with a better metric than the chosen federation, gaps for every attribute."""
    found = []
    for metric, words, larger in (
        ("auc", "AUC", True),
        ("balanced_accuracy", "balanced accuracy", True),
        ("balanced_accuracy@rate", "rate-matched balanced accuracy", True),
        ("eod", "equal opportunity gap", False),
        ("eod@rate", "rate-matched equal opportunity gap", False),
    ):
        for attribute in dict.fromkeys(m.attribute for m in training.final if m.metric == metric):
            rows = [m for m in training.final if m.metric == metric and m.attribute == attribute]
            mine = rows[0]
            better = [
                row for row in rows[1:] if (row.value > mine.value if larger else row.value < mine.value)
            ]
            if better:
                said = ", ".join(f"{row.label} {row.value:.4f}" for row in better)
                of = f" of {attribute}" if attribute else ""
                found.append(
                    Notice(
                        level="note",
                        title=f"a baseline has the better {words}{of}",
                        text=f"{mine.label} reached {mine.value:.4f}; better: {said}.",
                    )
                )
    return found


def unfinished_training(training: TrainingOutcome) -> list[Notice]:
    """Trainings whose log loss was still falling in the last round: their metrics are not what they come to."""
    late = [curve.label for curve in training.curves if curve.metric == "loss" and curve.still_falling]
    if not late:
        return []
    return [
        Notice(
            level="warning",
            title="training stopped before it converged",
            text=f"The log loss was still falling in the last rounds of: {', '.join(late)}. Compare after more rounds, "
            "or with a larger learning rate.",
        )
    ]


def other_settings(differences: Mapping[str, Sequence[str]]) -> list[Notice]:
    """Baselines that were trained with other settings than the chosen federation."""
    return [
        Notice(
            level="warning",
            title=f"'{label}' was trained with other settings",
            text=f"Differs in {'; '.join(parts)}. A difference in its metrics may be due to that, not to the clients.",
        )
        for label, parts in differences.items()
        if parts
    ]
