"""fedwise budget: what a ledger records and what is left."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .console import JsonOption, print_json, print_table, stderr


def budget(
    ledger: Annotated[Path, typer.Argument(help="The ledger of one data set.")],
    set_epsilon: Annotated[
        float | None,
        typer.Option("--set-epsilon", help="Set the total budget on purpose (creates a new ledger)."),
    ] = None,
    set_delta: Annotated[
        float | None, typer.Option("--set-delta", help="Set the delta of the total budget.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show the history of a ledger and what is left of its budget.

    Example: fedwise budget people.parquet.ledger.db
    """
    from ..owner.ledger import Ledger

    if not ledger.exists() and set_epsilon is not None:
        book = Ledger(ledger, set_epsilon, set_delta)
    else:
        book = Ledger(ledger)
        if set_epsilon is not None or set_delta is not None:
            book.set_budget(book.balance().epsilon if set_epsilon is None else set_epsilon, set_delta)
    balance, history = book.balance(), book.history()
    if json:
        print_json({"path": str(ledger), "balance": balance, "history": history})
        return
    print_table(
        f"ledger {ledger}",
        ["#", "at", "client", "plan", "epsilon", "delta"],
        [[c.id, c.at, c.client, c.plan[:12], f"{c.epsilon:g}", f"{c.delta:g}"] for c in history],
        right=["#", "epsilon", "delta"],
    )
    stderr().print(
        f"spent epsilon {balance.spent:.4g} of {balance.epsilon:g}, {balance.remaining:.4g} left "
        f"(delta {balance.delta:g}, {balance.charges} release(s), composed tightly)",
        markup=False,
    )
