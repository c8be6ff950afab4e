"""fedwise check: look at your data before anything leaves or is charged."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .console import JsonOption, print_json, say
from .inputs import SplitSeedOption, TestOption
from .owner_options import ByOption, LedgerOption, PartOption, find_files, parts_of

if TYPE_CHECKING:
    from ..owner.findings import Findings


def check(
    plan: Annotated[Path | None, typer.Argument(help="The plan.json received from the coordinator.")] = None,
    data: Annotated[
        Path | None, typer.Argument(help="Your rows: a text or Parquet file. They stay here.")
    ] = None,
    client: Annotated[str | None, typer.Option("--client", "-c", help="Public name of this client.")] = None,
    by: ByOption = None,
    part: PartOption = "all",
    test: TestOption = 0.2,
    split_seed: SplitSeedOption = 0,
    ledger: LedgerOption = None,
    json: JsonOption = False,
) -> None:
    """Look at your data as a release would, and list every problem at once. Nothing is released or charged.

    Example: fedwise check plan.json people.csv --client CA

    What it prints holds figures of your rows and is for you alone. Exit code 1 when a release would fail.
    """
    from ..owner.examination import check as examine
    from ..owner.ledger import Ledger
    from ..planning import Plan

    request, file = find_files(plan, data)
    asked = Plan.load(request)
    where = ledger or file.with_name(file.name + ".ledger.db")
    book = Ledger(where) if by is None and where.exists() else None
    if by is None and part == "all":
        looked = {client or "": examine(asked, file, client=client, ledger=book)}
    else:
        frames = parts_of(asked, file, client=client, by=by, part=part, test=test, split_seed=split_seed)
        looked = {
            name: examine(asked, frame, client=name or None, ledger=book, copies=part == "all")
            for name, frame in frames.items()
        }
    if json:
        print_json(
            {
                "ok": all(found.ok for found in looked.values()),
                "clients": [_plain(*item) for item in looked.items()],
            }
        )
    else:
        for name, found in looked.items():
            _show(name, found)
    if not all(found.ok for found in looked.values()):
        raise typer.Exit(1)


def _plain(name: str, found: Findings) -> dict[str, object]:
    return {
        "client": name or None,
        "ok": found.ok,
        "rows": found.rows,
        "kept": found.kept,
        "findings": [finding._asdict() for finding in found.all],
    }


def _show(name: str, found: Findings) -> None:
    head = f"client '{name}': " if name else ""
    if found.rows is not None:
        say(f"{head}{found.rows} rows, {found.kept} of them satisfy the filter")
    say(found)
    verdict = (
        "a release would be made" if found.ok else f"a release would fail: {len(found.problems)} problem(s)"
    )
    say(f"{head}{verdict}; nothing was released or charged")
