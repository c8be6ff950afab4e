"""Answer: the one way from rows and a plan to a release that may leave.

Check, count, charge, add noise, keep, hand over, in this order. Whatever can be refused is refused before
the ledger is touched; the charge is committed before noise is drawn; the release is kept before it leaves; and
a plan that was answered before is answered with the same release, at no further charge.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypedDict, Unpack

from ..errors import BudgetExceeded, FedwiseError, ReleaseError
from ..files import check_room, refuse_existing
from ..planning import Plan
from ..schema.frame import FrameLike
from .archive import Archive
from .ledger import Ledger
from .question import Question, check_order
from .release import Release, check_client, check_consent, check_version, draw
from .score import Score
from .tables import Tables


class Limits(TypedDict, total=False):
    """The largest ε and δ that an owner accepts of one plan."""

    max_epsilon: float | None
    max_delta: float | None


class Answer(NamedTuple):
    """A release, whether it is one made before, and the ledger it is charged to."""

    release: Release
    repeated: bool
    ledger: Ledger | None


def answer(
    plan: Plan,
    data: FrameLike | Callable[[], FrameLike],
    *,
    client: str,
    ledger: Callable[[], Ledger],
    archive: Archive,
    output: Path | None = None,
    force: bool = False,
    data_version: int | None = None,
    stage: int = 1,
    score: Score | None = None,
    epsilon: float | None = None,
    **limits: Unpack[Limits],
) -> Answer:
    """Answer a plan from private rows: charged, and never drawn twice.

    Parameters
    ----------
    plan
        The public request; verified first.
    data
        The rows, or a function that gives them. They are read only if the plan was not answered before.
    client
        Public name of the client.
    ledger
        A function that opens the owner's ledger, and creates it on first use. Called after the rows are found
        to fit the plan, so that bad rows do not create one.
    archive
        Where the ledger's releases are kept. An answer kept there is given again as it is, even if the rows
        changed since.
    output, force
        A file to write the release to, and whether it may replace another.
    data_version
        A number of the owner's own that grows when the data changes. A later edition of a plan that was
        answered before from data of this very version gets the same release again, at no charge.
    stage
        Which stage of a plan with stages is answered, from 1. The caller has checked the shortlist that asks for it.
    score
        What the stage that asks for a score scores by.
    epsilon
        The owner's own total ε, where it allows less than the plan asks.
    **limits
        ``max_epsilon``, ``max_delta``: the largest the owner accepts of one plan.

    Raises
    ------
    PlanError, DataError, ReleaseError
        Something does not fit, or the disk is full. Nothing is charged unless the message says so.
    LedgerError
        The ledger or the archive cannot be used. Nothing is charged.
    BudgetExceeded
        The plan asks for more than the owner accepts, or the ledger has left. Nothing is charged.
    """
    check(plan, client=client, stage=stage, score=score, epsilon=epsilon, **limits)
    question = Question.of(plan, stage=stage, epsilon=epsilon, score=score)
    if output is not None:
        refuse_existing(output, force=force, error=ReleaseError)
    check_version(data_version)
    kept = _kept(question, client, archive, data_version)
    if kept is not None:
        opened, made, repeated = ledger(), kept, True
    else:
        tables = question.tables(data() if callable(data) else data)
        _check_room(plan, archive, output)
        opened = ledger()
        made, repeated = _draw_once(
            question, tables, client=client, ledger=opened, archive=archive, version=data_version
        )
    if output is not None:
        _hand_over(made, output, archive=archive, force=force)
    return Answer(made, repeated, opened)


def check(
    plan: Plan,
    *,
    client: str,
    max_epsilon: float | None = None,
    max_delta: float | None = None,
    no_privacy: bool = False,
    stage: int = 1,
    score: Score | None = None,
    epsilon: float | None = None,
) -> None:
    """Refuse a plan, or a stage of it, without looking at any rows.

    Raises
    ------
    PlanError, ReleaseError
        The plan is damaged or dishonest, the client's name cannot be used, or the plan has no privacy and
        `no_privacy` does not consent to that.
    BudgetExceeded
        The plan's ε is above `max_epsilon`, or its δ above `max_delta`.
    """
    plan.verify()
    check_client(client)
    if max_epsilon is not None:
        if not max_epsilon > 0:
            raise FedwiseError(f"max_epsilon must be above 0, got {max_epsilon:g}; leave it out for no limit")
        total = Question.of(plan, stage=stage, epsilon=epsilon, score=score).total
        if total > max_epsilon:
            raise BudgetExceeded(
                f"plan must ask for epsilon {max_epsilon:g} at most (--max-epsilon), got {total:g}; "
                "ask for a plan with a smaller epsilon"
            )
    if max_delta is not None:
        if not max_delta > 0:
            raise FedwiseError(f"max_delta must be above 0, got {max_delta:g}; leave it out for no limit")
        if plan.delta > max_delta:
            raise BudgetExceeded(
                f"plan must ask for delta {max_delta:g} at most (--max-delta), got {plan.delta:g}; "
                "ask for a plan with a smaller delta"
            )
    check_consent(plan, no_privacy=no_privacy)


def _check_room(plan: Plan, archive: Archive, output: Path | None) -> None:
    """A full disk must not cost budget."""
    # The plan is part of a release; a noisy count takes a dozen characters at most.
    size = len(plan.encode()) + 12 * plan.layout.cells
    if output is not None:
        check_room(output, size, error=ReleaseError)
    if archive.ledger.parent.is_dir():  # otherwise the ledger says so
        check_room(archive.directory, size, error=ReleaseError)


def _kept(question: Question, client: str, archive: Archive, version: int | None) -> Release | None:
    """The answer to this plan and stage, or to an earlier edition of the plan from the same data."""
    plan = question.answered
    found = archive.find(plan, client, question.stage)
    if found is None and version is not None and plan.number > 1 and not plan.staged:
        return archive.unchanged(plan, client, version)
    return found


def _draw_once(
    question: Question, tables: Tables, *, client: str, ledger: Ledger, archive: Archive, version: int | None
) -> tuple[Release, bool]:
    """A new release, charged and kept, or the one that another process made meanwhile; whether it is that."""
    with archive.locked():
        found = _kept(question, client, archive, version)
        if found is not None:
            return found, True
        check_order(question, ledger, client=client)
        made = draw(question, tables, client=client, ledger=ledger, seed=None, version=version)
        try:
            archive.keep(made)
        except ReleaseError as error:
            raise ReleaseError(
                f"{error}; ledger '{ledger.path}' was charged before and stays so: this release is spent but lost"
            ) from None
        return made, False


def _hand_over(made: Release, output: Path, *, archive: Archive, force: bool) -> None:
    try:
        made.save(output, force=force)
    except ReleaseError as error:
        raise ReleaseError(
            f"{error}; the release is kept in '{archive.directory}': the same request gets it at no further charge"
        ) from None
