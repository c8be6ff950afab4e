"""fedwise release: answer a plan with noisy tables of local data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .console import ForceOption, JsonOption, check_output, note, print_json, say

if TYPE_CHECKING:
    from ..owner.answer import Answer
    from ..planning import Plan


def release(
    plan: Annotated[Path, typer.Argument(help="The plan.json received from the coordinator.")],
    data: Annotated[Path, typer.Argument(help="Your rows: a CSV or Parquet file. They stay here.")],
    client: Annotated[str, typer.Option("--client", "-c", help="Public name of this client.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Release file. [CLIENT.release.json]")
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option("--ledger", "-l", help="Budget ledger of this data set. [DATA.ledger.db]")
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget", help="Total epsilon when the ledger is new. [the plan's: room for this release only]"
        ),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option("--schema", help="Your own copy of the schema: refuse a plan of another one."),
    ] = None,
    max_epsilon: Annotated[
        float | None,
        typer.Option("--max-epsilon", help="Refuse a plan that asks for a larger epsilon. [no limit]"),
    ] = None,
    max_delta: Annotated[
        float | None, typer.Option("--max-delta", help="Refuse a plan whose delta is larger.")
    ] = None,
    no_privacy: Annotated[
        bool,
        typer.Option("--no-privacy", help="Consent to a plan of infinite epsilon: exact tables, NO privacy."),
    ] = False,
    simulated: Annotated[
        bool, typer.Option("--simulated", help="Seeded noise for experiments on public data: NO privacy.")
    ] = False,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Seed of simulated noise; refused for a real release.")
    ] = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Release noisy tables of your data in answer to a plan, and charge your ledger first.

    Example: fedwise release plan.json people.parquet --client CA -o releases/CA.release.json

    Only the release file leaves. The rows, the exact counts and the ledger stay with you. The same plan asked
    again gets the same release, kept beside the ledger in LEDGER.releases/, and charges nothing.
    """
    from ..errors import LedgerError
    from ..owner.answer import Answer, check
    from ..owner.release import SUFFIX, check_client, check_seed
    from ..owner.release import release as make_release

    # Everything that can be refused is refused before the rows are read and the ledger is touched.
    check_client(client)
    check_seed(seed, simulated=simulated)
    asked = _asked(plan, schema)
    target = output or Path(f"{client}{SUFFIX}")
    check_output(target, ".json", force=force)
    where = ledger or data.with_name(data.name + ".ledger.db")
    charged = asked.private and not simulated
    if not charged and (ledger is not None or budget is not None or where.exists()):
        kind = "simulated" if asked.private else "without privacy"
        raise LedgerError(
            f"data with a budget (ledger '{where}') must not be released {kind}; use public data"
        )
    check(asked, client=client, max_epsilon=max_epsilon, max_delta=max_delta, no_privacy=no_privacy)
    if charged:
        made = _charged(asked, data, client, where, budget=budget, output=target, force=force)
    else:
        fresh = make_release(
            asked, data, client=client, simulated=simulated, seed=seed, no_privacy=no_privacy
        )
        fresh.save(target, force=force)
        made = Answer(fresh, repeated=False, ledger=None)
    if json:
        _print_json(made, target)
    else:
        _show(made, target)


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


def _charged(
    asked: Plan, data: Path, client: str, where: Path, *, budget: float | None, output: Path, force: bool
) -> Answer:
    """A release charged to the ledger at `where`, or the one made before."""
    from ..errors import DataError
    from ..owner.answer import answer
    from ..owner.archive import Archive
    from ..owner.ledger import Ledger

    if not data.exists():  # which a release made before would not notice
        raise DataError(f"data file '{data}' does not exist; check the path")

    def open_ledger() -> Ledger:
        if where.exists():
            return Ledger(where, budget)
        return Ledger(where, asked.epsilon if budget is None else budget, asked.delta)

    return answer(
        asked, data, client=client, ledger=open_ledger, archive=Archive(where), output=output, force=force
    )


def _print_json(made: Answer, target: Path) -> None:
    release, ledger = made.release, made.ledger
    print_json(
        {
            "client": release.client,
            "output": str(target),
            "label": release.label,
            "repeated": made.repeated,
            "epsilon": release.epsilon,
            "delta": release.delta,
            "plan_digest": release.plan_digest,
            "tables": len(release.tables),
            "ledger": {"path": str(ledger.path), "balance": ledger.balance()} if ledger else None,
        }
    )


def _show(made: Answer, target: Path) -> None:
    release = made.release
    kind = "noisy" if release.private else "exact"
    say(f"released {len(release.tables)} {kind} tables of '{release.client}' to {target} ({release.label})")
    if made.repeated:
        say("  answered before; the same release is handed over, nothing is charged")
    say(f"  {release.plan.promise}")
    if made.ledger is not None:
        balance = made.ledger.balance()
        title = f"{'new ledger' if made.ledger.created else 'ledger'} {made.ledger.path}"
        say(
            f"  {title}: spent epsilon {balance.spent:.4g} of {balance.epsilon:g}, {balance.remaining:.4g} left "
            f"(delta {balance.delta:g})"
        )
    if release.label != "private":
        note(f"  WARNING: this release is {release.label}; do not make one from people's data")
