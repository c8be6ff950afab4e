"""Options of an owner that is asked in stages, or allows less than it is asked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .console import note, say

if TYPE_CHECKING:
    from ..owner.question import Question
    from ..planning import Plan
    from ..schema.frame import FrameLike

OwnEpsilonOption = Annotated[
    float | None,
    typer.Option(
        "--epsilon", "-e", help="Your own total epsilon where you allow less than asked: more noise."
    ),
]
StageOption = Annotated[
    int, typer.Option("--stage", help="Stage of a plan with stages; beyond the first with --shortlist.")
]
ShortlistOption = Annotated[
    Path | None, typer.Option("--shortlist", help="The shortlist.json by which you are asked again.")
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Say what is asked and what it adds; release and charge nothing.")
]


def asked_at(
    asked: Plan,
    stage: int,
    epsilon: float | None,
    shortlist: Path | None,
    client: str | None,
    *,
    by: str | None,
) -> Question:
    """What an owner is asked, refused where a later stage comes without a shortlist that names the client."""
    from ..errors import ReleaseError
    from ..owner.question import Question
    from ..owner.shortlisted import Shortlist

    asked.stage(stage)  # refuses a stage that is none of the plan's
    if stage > 1 and shortlist is None:
        raise ReleaseError(
            f"stage {stage} must come with the shortlist that asks for it; add --shortlist shortlist.json"
        )
    found = None if shortlist is None else Shortlist.load(shortlist)
    if found is not None and by is None:
        found.admit(asked, stage=stage, client=client or "")
    score = None if found is None or found.stage != stage else found.scored
    return Question.of(asked, stage=stage, epsilon=epsilon, score=score)


def listed(
    frames: dict[str, FrameLike], question: Question, shortlist: Path | None, folder: Path
) -> dict[str, FrameLike]:
    """The clients of a file that a stage asks: all, or beyond the first stage those on the shortlist.

    Clients of earlier waves whose release is in the folder have answered.
    """
    from ..errors import ReleaseError
    from ..owner.batch import release_name
    from ..owner.shortlisted import Shortlist

    if shortlist is None:
        return frames
    found = Shortlist.load(shortlist)
    again = {name: rows for name, rows in frames.items() if name in found.clients}
    if not again:
        raise ReleaseError(
            f"shortlist '{shortlist}' must name a client of this file; nothing more is asked of them"
        )
    for name in again:
        found.admit(question.asked, stage=question.stage, client=name)
    done = {
        name
        for name in set(again) - set(found.added)
        if (folder / release_name(name, question.stage)).exists()
    }
    again = {name: rows for name, rows in again.items() if name not in done}
    if done:
        note(f"{len(done)} of them answered in an earlier wave")
    if not again:
        raise ReleaseError(
            f"shortlist '{shortlist}' asks no client of this file that has not answered; wait for the next"
        )
    note(f"{len(again)} of {len(frames)} clients are on the shortlist; the others are not asked again")
    return again


def describe(question: Question, where: Path) -> None:
    """Say what would be asked, and what the ledger has spent so far."""
    from ..owner.ledger import Ledger

    say(question.answered.promise)
    if question.sentence:
        say(question.sentence)
    if where.exists():
        balance = Ledger(where).balance()
        say(f"ledger {where}: spent epsilon {balance.spent:.4g} of {balance.epsilon:g} so far")
    note("nothing was released or charged")
