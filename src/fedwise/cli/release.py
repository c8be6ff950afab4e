"""fedwise release: answer a plan with noisy tables of local data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .console import ForceOption, JsonOption, print_json, stderr

if TYPE_CHECKING:
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

    Only the release file leaves. The rows, the exact counts and the ledger stay with you.
    """
    from ..errors import LedgerError, PlanError, ReleaseError
    from ..files import refuse_existing
    from ..owner.ledger import Ledger
    from ..owner.release import SUFFIX, check_client, check_seed
    from ..owner.release import release as make_release
    from ..planning import Plan
    from .plan import load_schema

    # Everything that can be refused is refused before the ledger is touched.
    check_client(client)
    check_seed(seed, simulated=simulated)
    asked = Plan.load(plan)
    if schema is not None and load_schema(schema).digest != asked.schema_digest:
        raise PlanError(
            f"plan file '{plan}' asks for another schema than '{schema}'; get a plan for your schema"
        )
    target = output or Path(f"{client}{SUFFIX}")
    refuse_existing(target, force=force)
    book = None
    where = ledger or data.with_name(data.name + ".ledger.db")
    if asked.private and not simulated:
        asked.schema.encode(data)  # a dry run: bad data must not even create a ledger
        _rehearse(target, asked)
        if where.exists():
            book = Ledger(where, budget)
        else:
            book = Ledger(where, asked.epsilon if budget is None else budget, asked.delta)
    elif ledger is not None or budget is not None or where.exists():
        kind = "simulated" if asked.private else "without privacy"
        raise LedgerError(
            f"data with a budget (ledger '{where}') must not be released {kind}; use public data"
        )
    made = make_release(asked, data, client=client, ledger=book, simulated=simulated, seed=seed)
    try:
        made.save(target, force=force)
    except ReleaseError as error:
        if book is None:
            raise
        raise ReleaseError(
            f"{error}; ledger '{book.path}' was charged before and stays so: this release is spent but lost"
        ) from None
    balance = book.balance() if book else None
    if json:
        print_json(
            {
                "client": client,
                "output": str(target),
                "label": made.label,
                "epsilon": made.epsilon,
                "delta": made.delta,
                "plan_digest": made.plan_digest,
                "tables": len(made.tables),
                "ledger": {"path": str(book.path), "balance": balance} if book else None,
            }
        )
        return
    console = stderr()
    console.print(
        f"released {len(made.tables)} noisy tables of '{client}' to {target} ({made.label})", markup=False
    )
    console.print(f"  {asked.promise}", markup=False)
    if balance is not None and book is not None:
        console.print(
            f"  ledger {book.path}: spent epsilon {balance.spent:.4g} of {balance.epsilon:g}, "
            f"{balance.remaining:.4g} left (delta {balance.delta:g})",
            markup=False,
        )
    if made.label != "private":
        console.print(
            f"  WARNING: this release is {made.label}; do not make one from people's data", markup=False
        )


def _rehearse(target: Path, asked: Plan) -> None:
    """Write and remove a file as large as the release will be: a full disk must not cost budget."""
    from contextlib import suppress

    from ..errors import ReleaseError
    from ..files import write_new

    trial = target.with_name(f".{target.name[:40]}.trial")
    # The plan is part of a release; a noisy count takes a dozen characters at most.
    write_new(trial, bytes(len(asked.encode()) + 12 * asked.layout.cells), force=True, error=ReleaseError)
    with suppress(OSError):
        trial.unlink()
