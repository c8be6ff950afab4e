"""fedwise budget: what a ledger records and what is left."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .console import JsonOption, note, print_json, print_table, say
from .owner_options import left

if TYPE_CHECKING:
    from ..owner.entries import Trained


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
    balance, history, training = book.balance(), book.history(), book.training()
    if json:
        print_json({"path": str(ledger), "balance": balance, "history": history, "training": training})
        return
    if book.created:
        note(f"new ledger {ledger}")
    print_table(
        f"ledger {ledger}",
        ["#", "at", "client", "plan", "epsilon", "delta"],
        [[c.id, c.at, c.client, c.plan[:12], f"{c.epsilon:g}", f"{c.delta:g}"] for c in history],
        right=["#", "epsilon", "delta"],
    )
    if training:
        print_table(
            "training",
            ["answers", "times", "first", "last", "epsilon"],
            [_summary(kind, training, balance.training) for kind in sorted({t.kind for t in training})],
            right=["times", "epsilon"],
        )
    say(
        f"spent epsilon {balance.spent:.4g} of {balance.epsilon:g}, {left(balance)} "
        f"(delta {balance.delta:g}, {balance.charges} release(s), {balance.rounds} private round(s), "
        "composed tightly)"
    )
    if balance.open_rounds or balance.evaluations:
        say(
            f"{balance.open_rounds} round(s) and {balance.evaluations} evaluation(s) left without noise: no epsilon "
            "covers them"
        )


def _summary(kind: str, training: list[Trained], epsilon: float) -> list[object]:
    """One line for all answers of a kind."""
    lines = [line for line in training if line.kind == kind]
    cost = f"{epsilon:.4g}" if kind == "private round" else "not covered"
    return [kind, len(lines), lines[0].at, lines[-1].at, cost]
