"""fedwise release: answer a plan with noisy tables of local data."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .console import ForceOption, JsonOption, check_output, note, print_json, progress, say
from .inputs import SplitSeedOption, TestOption
from .owner_options import (
    BudgetOption,
    ByOption,
    DataVersionOption,
    LedgerOption,
    MaxDeltaOption,
    MaxEpsilonOption,
    NoiseSeedOption,
    NoPrivacyOption,
    OwnSchemaOption,
    PartOption,
    SimulatedOption,
    find_files,
    left,
    parts_of,
)
from .stage_options import (
    DryRunOption,
    OwnEpsilonOption,
    ShortlistOption,
    StageOption,
    asked_at,
    describe,
    listed,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..owner.answer import Answer
    from ..owner.question import Question
    from ..planning import Plan
    from ..schema.frame import FrameLike


def release(
    plan: Annotated[Path | None, typer.Argument(help="The plan.json received from the coordinator.")] = None,
    data: Annotated[
        Path | None, typer.Argument(help="Your rows: a text or Parquet file. They stay here.")
    ] = None,
    client: Annotated[
        str | None, typer.Option("--client", "-c", help="Public name of this client; not with --by.")
    ] = None,
    by: ByOption = None,
    part: PartOption = "all",
    test: TestOption = 0.2,
    split_seed: SplitSeedOption = 0,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Release file, or folder with --by. [CLIENT.release.json, or releases/]"
        ),
    ] = None,
    ledger: LedgerOption = None,
    budget: BudgetOption = None,
    schema: OwnSchemaOption = None,
    max_epsilon: MaxEpsilonOption = None,
    max_delta: MaxDeltaOption = None,
    epsilon: OwnEpsilonOption = None,
    stage: StageOption = 1,
    shortlist: ShortlistOption = None,
    dry_run: DryRunOption = False,
    data_version: DataVersionOption = None,
    no_privacy: NoPrivacyOption = False,
    simulated: SimulatedOption = False,
    seed: NoiseSeedOption = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Release noisy tables of your data in answer to a plan, and charge your ledger first.

    Example: fedwise release plan.json people.parquet --client CA -o releases/CA.release.json

    Example: fedwise release plan.json all.csv --by PUMA -o releases/

    Only the release leaves. The same plan asked again gets the same release, kept in LEDGER.releases/, at no charge.
    """
    from ..owner.release import check_seed

    # Everything that can be refused is refused before the rows are read and the ledger is touched.
    request, file = find_files(plan, data)
    check_seed(seed, simulated=simulated)
    asked = _asked(request, schema)
    question = asked_at(asked, stage, epsilon, shortlist, client, by=by)
    if dry_run:
        describe(question, ledger or file.with_name(file.name + ".ledger.db"))
        return
    limits = {"max_epsilon": max_epsilon, "max_delta": max_delta}
    frames = partial(parts_of, asked, file, client=client, by=by, part=part, test=test, split_seed=split_seed)
    hint = f"fedwise check {request} {file}" + (f" --by {by}" if by else "")
    if by is not None:
        _refuse_with_by(data_version, simulated=simulated, no_privacy=no_privacy)
        folder = output or Path("releases")
        _release_all(
            question, listed(frames(), question, shortlist, folder), file, ledger, folder, budget=budget,
            limits=limits, force=force, json=json,
        )  # fmt: skip
        return
    made, target, warnings = _release_one(
        question, client, file, frames, ledger, output, budget=budget, limits=limits, no_privacy=no_privacy,
        simulated=simulated, seed=seed, force=force, hint=hint, data_version=data_version,
    )  # fmt: skip
    for text in warnings:
        note(f"warning: {text}; {hint} says more")
    if json:
        print_json(_plain(made, target))
    else:
        _show(made, target, question.sentence)


def _release_one(
    question: Question,
    client: str | None,
    file: Path,
    frames: Callable[[], dict[str, FrameLike]],
    ledger: Path | None,
    output: Path | None,
    *,
    budget: float | None,
    limits: dict[str, float | None],
    no_privacy: bool,
    simulated: bool,
    seed: int | None,
    force: bool,
    hint: str,
    data_version: int | None,
) -> tuple[Answer, Path, list[str]]:
    """One client's release, where it was written, and what was odd about the rows."""
    from ..errors import DataError, FedwiseError, LedgerError
    from ..owner.answer import Answer, answer, check
    from ..owner.archive import Archive
    from ..owner.batch import open_ledger, refuse_problems, release_name
    from ..owner.release import check_client
    from ..owner.release import release as make_release

    if client is None:
        raise FedwiseError(
            "client must be named: pass --client NAME, or --by COLUMN for a file of several clients"
        )
    check_client(client)
    asked, stage = question.asked, question.stage
    epsilon = question.total if asked.private else None
    target = output or Path(release_name(client, stage))
    check_output(target, ".json", force=force)
    where = ledger or file.with_name(file.name + ".ledger.db")
    charged = asked.private and not simulated
    if not charged and (ledger is not None or budget is not None or where.exists()):
        kind = "simulated" if asked.private else "without privacy"
        raise LedgerError(
            f"data with a budget (ledger '{where}') must not be released {kind}; use public data"
        )
    check(
        asked, client=client, no_privacy=no_privacy, stage=stage, score=question.score, epsilon=epsilon, **limits
    )  # fmt: skip
    if not file.exists():  # which a release made before would not notice
        raise DataError(f"data file '{file}' does not exist; check the path")
    warnings: list[str] = []
    if not charged:
        rows = frames()[client]
        warnings = refuse_problems(asked, {client: rows}, hint=hint)
        fresh = make_release(
            asked, rows, client=client, simulated=simulated, seed=seed, no_privacy=no_privacy, stage=stage,
            score=question.score, epsilon=epsilon, data_version=data_version,
        )  # fmt: skip
        fresh.save(target, force=force)
        return Answer(fresh, repeated=False, ledger=None), target, warnings

    def read() -> FrameLike:
        rows = frames()[client]
        warnings.extend(refuse_problems(asked, {client: rows}, hint=hint))
        return rows

    made = answer(
        asked, read, client=client, ledger=lambda: open_ledger(question.answered, where, budget),
        archive=Archive(where), output=target, force=force, stage=stage, score=question.score,
        epsilon=question.total, data_version=data_version,
    )  # fmt: skip
    return made, target, warnings


def _refuse_with_by(data_version: int | None, *, simulated: bool, no_privacy: bool) -> None:
    """Options that speak of one client's release; ignored, they would mean a real charge where none was meant."""
    from ..errors import FedwiseError

    if data_version is not None:
        raise FedwiseError("--data-version must not be given with --by: each owner numbers its own data")
    for given, option in ((simulated, "--simulated"), (no_privacy, "--no-privacy")):
        if given:
            raise FedwiseError(
                f"{option} must not be given with --by; release one client at a time with --client"
            )


def _release_all(
    question: Question,
    frames: dict[str, FrameLike],
    file: Path,
    ledgers: Path | None,
    folder: Path,
    *,
    budget: float | None,
    limits: dict[str, float | None],
    force: bool,
    json: bool,
) -> None:
    """A release of every client in the file, each charged to its own ledger."""
    from ..owner.batch import answer_all, release_name

    with progress() as bar:
        task = bar.add_task("releasing", total=len(frames), best="")
        made = answer_all(
            question.asked, frames, ledgers=ledgers or file.with_name(file.name + ".ledgers"), output=folder,
            budget=budget, force=force, progress=lambda name: bar.update(task, advance=1, best=name),
            stage=question.stage, score=question.score,
            epsilon=question.total if question.asked.private else None, **limits,
        )  # fmt: skip
    answers = [(one, folder / release_name(name, question.stage)) for name, one in made.items()]
    if json:
        print_json({"output": str(folder), "releases": [_plain(*one) for one in answers]})
        return
    repeated = sum(one.repeated for one, _ in answers)
    what = f"{len(question.asked.tables)} tables" if question.score is None else "the sum of a score"
    say(f"released {what} of each of {len(made)} clients to {folder} (private)")
    if repeated:
        say(f"  {repeated} of them had answered before and are not charged again")
    say(f"  {question.answered.promise}")
    if question.sentence:
        say(f"  {question.sentence}")
    say(f"  a ledger for each in {next(one.ledger.path.parent for one, _ in answers if one.ledger)}")


def _asked(path: Path, schema: str | None) -> Plan:
    """The plan, refused where the owner names another schema than its own."""
    from ..errors import PlanError
    from ..planning import Plan
    from .plan import load_schema

    asked = Plan.load(path)
    if schema is not None and load_schema(schema).digest != asked.schema_digest:
        raise PlanError(
            f"plan file '{path}' asks for another schema than '{schema}'; get a plan for your schema"
        )
    return asked


def _plain(made: Answer, target: Path) -> dict[str, object]:
    from msgspec import UnsetType

    release, ledger = made.release, made.ledger
    return {
        "client": release.client,
        "output": str(target),
        "label": release.label,
        "repeated": made.repeated,
        "epsilon": release.epsilon,
        "asked_epsilon": release.epsilon if isinstance(release.asked, UnsetType) else release.asked.epsilon,
        "stage": release.number,
        "delta": release.delta,
        "plan_digest": release.plan_digest,
        "tables": len(release.tables),
        "ledger": {"path": str(ledger.path), "balance": ledger.balance()} if ledger else None,
    }


def _show(made: Answer, target: Path, asked: str) -> None:
    release = made.release
    kind = "noisy" if release.private else "exact"
    what = (
        "one noisy number, the sum of a score," if release.scored else f"{len(release.tables)} {kind} tables"
    )
    say(f"released {what} of '{release.client}' to {target} ({release.label})")
    if made.repeated:
        say("  answered before; the same release is handed over, nothing is charged")
    say(f"  {release.plan.promise}")
    if asked:
        say(f"  {asked}")
    if made.ledger is not None:
        balance = made.ledger.balance()
        title = f"{'new ledger' if made.ledger.created else 'ledger'} {made.ledger.path}"
        say(
            f"  {title}: spent epsilon {balance.spent:.4g} of {balance.epsilon:g}, {left(balance)} "
            f"(delta {balance.delta:g})"
        )
    if release.label != "private":
        note(f"  WARNING: this release is {release.label}; do not make one from people's data")
