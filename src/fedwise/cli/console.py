"""What every command shares: results on standard output, notes and progress on standard error."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
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

#: Columns of a table that goes to a file or another command, where no terminal sets a width.
PIPE_WIDTH = 120


def stdout() -> Console:
    """The console of results: tables and sentences that answer the command."""
    return _console(error=False)


def stderr() -> Console:
    """The console of everything that is not the answer itself: notes, warnings, progress."""
    return _console(error=True)


def _console(*, error: bool) -> Console:
    from rich.console import Console

    made = Console(stderr=error, highlight=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = PIPE_WIDTH
    return made


def say(text: object) -> None:
    """A sentence of the result, on standard output."""
    _print(stdout(), text)


def note(text: object) -> None:
    """A sentence beside the result, on standard error."""
    _print(stderr(), text)


def _print(console: Console, text: object) -> None:
    """Lines broken between words on a terminal and never inside one, so that paths can be copied; whole in a pipe."""
    wraps = console.is_terminal or "COLUMNS" in os.environ
    for line in str(text).split("\n"):
        # What stands before the words of a line stands before its continuations too.
        margin = line[: len(line) - len(line.lstrip())]
        parts = textwrap.wrap(
            line.strip(), max(console.width - len(margin), 20), break_long_words=False, break_on_hyphens=False
        )
        for part in parts if wraps and parts else [line.strip()]:
            console.print(margin + part, markup=False, soft_wrap=True)


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
    """A table of the result on standard output: see `fedwise.cli.layout.print_fitted`."""
    from .layout import print_fitted

    print_fitted(stdout(), title, columns, rows, right=right, keys=keys)


def check_output(path: Path | None, *endings: str, force: bool) -> None:
    """Refuse, before any work is done, an output that exists or whose name does not say what will be in it."""
    from ..errors import FedwiseError
    from ..files import refuse_existing

    if path is None:
        return
    refuse_existing(path, force=force)
    if path.suffix.lower() not in endings:
        raise FedwiseError(f"output '{path}' must end in {' or '.join(endings)}; choose another name")


class Silent:
    """Shows nothing; a terminal's progress bar takes as long to load as a small command."""

    def add_task(self, description: str, **fields: Any) -> Any:
        """Begin a task."""

    def update(self, task: Any, **fields: Any) -> None:
        """Tell how far a task is."""

    def advance(self, task: Any, advance: float = 1) -> None:
        """Tell that a task has gone on."""


@contextmanager
def progress() -> Iterator[Progress | Silent]:
    """A progress bar on stderr with a free text field ``best`` for the best so far.

    Use ``task = bar.add_task("searching", total=n, best="")`` and
    ``bar.update(task, completed=i, best="loss -0.21")``. Silent when stderr is not a terminal.
    """
    if not sys.stderr.isatty() and not os.environ.get("FORCE_COLOR"):
        yield Silent()
        return
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
