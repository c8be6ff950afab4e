"""What every command shares: options, tables and progress on stderr, JSON on stdout."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, for machines.")]
SeedOption = Annotated[
    int, typer.Option("--seed", help="Seed of every random choice that is not privacy noise.")
]
ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")]


def stderr() -> Console:
    """The console for people: everything that is not the answer itself."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def print_json(value: Any) -> None:
    """The answer for machines: one JSON object on stdout."""
    import msgspec

    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
    sys.stdout.flush()


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    right: Sequence[str] = (),
    keys: int = 1,
) -> None:
    """A table for people on stderr: see `fedwise.cli.layout.print_fitted`."""
    from .layout import print_fitted

    print_fitted(stderr(), title, columns, rows, right=right, keys=keys)


@contextmanager
def progress() -> Iterator[Progress]:
    """A progress bar on stderr with a free text field ``best`` for the best so far.

    Use ``task = bar.add_task("searching", total=n, best="")`` and
    ``bar.update(task, completed=i, best="loss -0.21")``. Silent when stderr is not a terminal.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = stderr()
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        TextColumn("[green]{task.fields[best]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    ) as bar:
        yield bar
