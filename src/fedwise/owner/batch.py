"""Batch: one holder answers a plan for many clients, each from a ledger of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from ..errors import DataError, FedwiseError, LedgerError, ReleaseError
from ..planning import Plan
from ..schema.frame import FrameLike
from .answer import Answer, answer
from .answer import check as check_plan
from .archive import Archive
from .examination import check
from .ledger import Ledger
from .question import Question, check_order
from .release import SUFFIX
from .score import Score


def answer_all(
    plan: Plan,
    frames: Mapping[str, FrameLike],
    *,
    ledgers: Path,
    output: Path,
    budget: float | None = None,
    max_epsilon: float | None = None,
    max_delta: float | None = None,
    force: bool = False,
    progress: Callable[[str], None] | None = None,
    stage: int = 1,
    score: Score | None = None,
    epsilon: float | None = None,
) -> dict[str, Answer]:
    """Answer a plan for every client, or for none: nobody is charged before everybody's rows are found to fit.

    Parameters
    ----------
    plan
        The public request.
    frames
        Rows of each client, by its public name.
    ledgers, output
        Folders: a ledger ``NAME.db`` and a release ``NAME.release.json`` for each client, ``NAME.stage2.release.json``
        for the second stage.
    budget
        Total ε of a new ledger. [the plan's]
    max_epsilon, max_delta, force
        As for `fedwise.owner.answer.answer`.
    progress
        Called with the name of every client that has answered.
    stage, score, epsilon
        As for `fedwise.owner.answer.answer`. The caller has checked the shortlist that asks for a later stage.

    Raises
    ------
    DataError
        Rows of a client do not fit; the message says how many clients that concerns. Nothing is charged.
    """
    if output.exists() and not output.is_dir():
        raise FedwiseError(f"output '{output}' is a file; name a folder for the releases")
    for name in frames:
        check_plan(
            plan, client=name, max_epsilon=max_epsilon, max_delta=max_delta, stage=stage, score=score, epsilon=epsilon
        )  # fmt: skip
    question = Question.of(plan, stage=stage, epsilon=epsilon, score=score)
    archives = {name: Archive(ledgers / f"{name}.db") for name in frames}
    new = [name for name in frames if archives[name].find(question.answered, name, stage) is None]
    for name in new if stage > 1 else ():
        _check_before(question, ledgers / f"{name}.db", name)
    refuse_problems(plan, {name: frames[name] for name in new})
    try:
        ledgers.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as cause:
        raise LedgerError(
            f"folder of ledgers '{ledgers}' cannot be made ({cause.strerror}); check the path"
        ) from None
    made = {}
    for name, frame in frames.items():
        path = ledgers / f"{name}.db"
        made[name] = answer(
            plan,
            frame,
            client=name,
            ledger=_opener(question.answered, path, budget),
            archive=archives[name],
            max_epsilon=max_epsilon,
            max_delta=max_delta,
            output=output / release_name(name, stage),
            force=force,
            stage=stage,
            score=score,
            epsilon=epsilon,
        )
        if progress is not None:
            progress(name)
    return made


def release_name(client: str, stage: int = 1) -> str:
    """What the file of a client's release is called where nobody says otherwise."""
    return f"{client}{f'.stage{stage}' if stage > 1 else ''}{SUFFIX}"


def _check_before(question: Question, ledger: Path, client: str) -> None:
    """Refuse a stage of a client whose stage before was never charged, before anybody else is charged."""
    if not ledger.exists():
        raise ReleaseError(
            f"stage {question.stage} must follow stage {question.stage - 1}, and client '{client}' has no ledger "
            f"'{ledger}'; name the folder of ledgers that the stage before used"
        )
    check_order(question, Ledger(ledger), client=client)


def _opener(plan: Plan, path: Path, budget: float | None) -> Callable[[], Ledger]:
    return lambda: open_ledger(plan, path, budget)


def open_ledger(plan: Plan, path: Path, budget: float | None) -> Ledger:
    """The ledger there, or a new one with this budget, or with room for this plan only."""
    if path.exists():
        return Ledger(path, budget)
    return Ledger(path, plan.epsilon if budget is None else budget, plan.delta)


def refuse_problems(plan: Plan, frames: Mapping[str, FrameLike], *, hint: str = "fedwise check") -> list[str]:
    """Refuse rows that a release would refuse, and return the warnings about the others, without any figure.

    Raises
    ------
    DataError
        The first problem in one sentence, and how many there are in all.
    """
    warnings: list[str] = []
    bad: dict[str, int] = {}
    first: FedwiseError | None = None
    for name, frame in frames.items():
        found = check(plan, frame, client=name, copies=False)
        if found.problems:
            bad[name] = len(found.problems)
            first = first or _error(plan, frame, found.problems[0].says)
        warnings += [
            f"{finding.says} (client '{name}')" if len(frames) > 1 else finding.says
            for finding in found.warnings
        ]
    if first is None:
        return list(dict.fromkeys(warnings))
    total = sum(bad.values())
    who = f"client '{next(iter(bad))}': " if len(frames) > 1 else ""
    more = f"; {total} problems of {len(bad)} client(s) in all: {hint} lists them" if total > 1 else ""
    raise type(first)(f"{who}{first}{more}")


def _error(plan: Plan, frame: FrameLike, says: str) -> FedwiseError:
    """The error that a release would raise."""
    from .release import check_people

    try:
        check_people(plan, frame)
    except FedwiseError as error:
        return error
    return DataError(f"{says}; fedwise check says more")
