"""Checks: which questions were asked about a selection, what they found, and which could not be asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..estimation.estimates import Estimates
from ..planning import Plan
from ..pool.card import quick_quality
from ..pool.pool import Pool
from ..search.selection import Selection
from . import alerts
from .alerts import Notice
from .labels import Label, label_of
from .outcomes import TrainingOutcome
from .promise import TrainingPrivacy
from .tables import AuditRow

_NAME_RELEASES = "name the releases with --releases"


@dataclass(frozen=True)
class Evidence:
    """What is at hand besides the selection. What is missing cannot be checked."""

    pool: Pool | None = None
    plan: Plan | None = None
    estimates: Estimates | None = None
    audits: list[AuditRow] = field(default_factory=list)
    training: TrainingOutcome | None = None
    training_privacy: TrainingPrivacy | None = None
    #: What differs between each baseline's settings and those of the chosen federation; ``None`` where not known.
    differences: Mapping[str, Sequence[str]] | None = None

    @property
    def shown_training_privacy(self) -> TrainingPrivacy | None:
        """Privacy of the training that is shown; ``not checked`` where nothing is known of it."""
        if self.training is None:
            return None
        return self.training_privacy or TrainingPrivacy(label="not checked")


class Check(NamedTuple):
    """One question, and what it found; `found` is ``None`` where it could not be asked; `remedy` says how to."""

    question: str
    found: list[Notice] | None
    remedy: str = ""


class Findings(NamedTuple):
    """Alerts, gravest first; the questions that were asked; those that were not, with what they need."""

    alerts: list[Notice]
    checked: list[str]
    unchecked: list[str]


def examine(selection: Selection, evidence: Evidence | None = None) -> Findings:
    """Ask everything that can be asked about a selection with the evidence at hand."""
    at_hand = evidence or Evidence()
    label = label_of(at_hand.pool, selection, plan=at_hand.plan)
    checks = [
        *_promise_checks(label, at_hand),
        *_release_checks(selection, at_hand, label),
        *_selection_checks(selection, label),
        *_training_checks(at_hand),
    ]
    order = {"stop": 0, "warning": 1, "note": 2}
    found = [notice for check in checks for notice in check.found or ()]
    return Findings(
        alerts=sorted(found, key=lambda notice: order[notice.level]),
        checked=[check.question for check in checks if check.found is not None],
        unchecked=[
            f"{check.question[0].upper()}{check.question[1:]}: {check.remedy}."
            for check in checks
            if check.found is None
        ],
    )


def _promise_checks(label: Label, at_hand: Evidence) -> list[Check]:
    # Exact counts promise nothing, so there is no strength to judge.
    strength: list[Notice] | None = [] if label == "not private" else None
    if strength is None and at_hand.plan is not None:
        strength = alerts.weak_promise(at_hand.plan)
    return [
        Check(
            "whether the releases carry the promised noise",
            None if label == "not checked" else alerts.no_promise(label),
            _NAME_RELEASES,
        ),
        Check("how strong the promise is", strength, _NAME_RELEASES),
        Check(
            "whether an attack on the releases succeeds",
            alerts.broken_audits(at_hand.audits) if at_hand.audits else None,
            "run fedwise audit and name its outcome with --audit",
        ),
    ]


def _release_checks(selection: Selection, at_hand: Evidence, label: Label) -> list[Check]:
    pool, estimates = at_hand.pool, at_hand.estimates
    other = None
    if estimates is not None and selection.objective == "pfl":
        other = alerts.other_loss(estimates, selection)
    cards = quick_quality(pool) if pool is not None else None
    checks = [
        Check(
            "whether releases fail the screen or are unusual",
            alerts.screened_releases(selection, pool) if pool is not None else None,
            _NAME_RELEASES,
        ),
        Check(
            "whether the records of clients look spoilt",
            alerts.spoilt_records(selection, cards) if cards is not None else None,
            _NAME_RELEASES if pool is None else "run fedwise inspect --quality",
        ),
        Check(
            "whether the releases give the selection's loss",
            other,
            _NAME_RELEASES
            if estimates is None
            else f"the objective '{selection.objective}' is not computed here",
        ),
        Check(
            "whether the search noted anything against the selection",
            alerts.noted_by_search(selection, releases=pool is not None),
        ),
    ]
    if label != "not private":
        small = None
        if pool is not None and estimates is not None:
            small = alerts.small_clients(estimates, pool.plan, selection)
        checks.append(Check("whether clients are too small for the noise", small, _NAME_RELEASES))
    return checks


def _selection_checks(selection: Selection, label: Label) -> list[Check]:
    again = "select again with --evidence full"
    checks = [Check("whether the search ran to its end", alerts.interrupted_search(selection))]
    if label != "not private":
        checks.append(
            Check(
                "whether other noise would choose other members",
                alerts.members_by_luck(selection) if selection.frequency else None,
                again,
            )
        )
    if selection.k >= 3:
        known = any(part.leave_one_out is not None for part in selection.contributions)
        checks.append(
            Check(
                "whether the selection depends on one member",
                alerts.dominant_member(selection) if known else None,
                again,
            )
        )
    return checks


def _training_checks(at_hand: Evidence) -> list[Check]:
    privacy, outcome = at_hand.shown_training_privacy, at_hand.training
    if privacy is None or outcome is None:
        return []
    several = len({measure.label for measure in outcome.final}) > 1
    losses = [curve for curve in outcome.curves if curve.metric == "loss"]
    seen = bool(losses) and all(len(curve.mean) >= 3 for curve in losses)
    same = at_hand.differences
    checks = [
        Check(
            "whether training was private",
            None if privacy.label == "not checked" else alerts.training_privacy(privacy.label),
            "make the report from the run directory",
        ),
        Check(
            "whether a baseline did better",
            alerts.better_baselines(outcome) if several else None,
            "name one with --comparison or --baseline",
        ),
        Check(
            "whether training had converged when it stopped",
            alerts.unfinished_training(outcome) if seen else None,
            "test the log loss in at least three rounds",
        ),
    ]
    if several:
        checks.append(
            Check(
                "whether all that is compared was trained with the same settings",
                alerts.other_settings(same) if same is not None else None,
                "name run directories with --baseline, or one comparison",
            )
        )
    return checks
