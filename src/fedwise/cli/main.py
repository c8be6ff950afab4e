"""The ``fedwise`` command."""

from __future__ import annotations

import gc
import importlib
import inspect
import sys
from pathlib import Path
from typing import Any

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from .. import __version__
from ..errors import FedwiseError
from .command import Command
from .project import defaults_of, find_project, read_project

#: Commands in the order a project uses them. Each lives in ``cli/<name>.py`` as a function of that name;
#: an entry that holds a Typer app of sub-commands names it ``app``.
COMMANDS = (
    "demo",
    "data",
    "features",
    "plan",
    "check",
    "release",
    "inspect",
    "budget",
    "select",
    "shortlist",
    "frontier",
    "doubles",
    "rehearse",
    "tune",
    "explore",
    "train",
    "compare",
    "predict",
    "report",
    "calibrate",
    "audit",
    "flower",
)


class Commands(TyperGroup):
    """The commands, each loaded when it is asked for: a person who runs one does not wait for the others."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Loaded()

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order a project uses them."""
        return list(COMMANDS)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The page of all commands needs their first lines only: making their options takes longer than the rest."""
        whole, self.commands = self.commands, {name: _headline(name) for name in COMMANDS}
        try:
            super().format_help(ctx, formatter)
        finally:
            self.commands = whole


class _Loaded(dict[str, Any]):
    """Commands by name, in order."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(COMMANDS))

    def __getitem__(self, name: str) -> Any:
        found = super().__getitem__(name)
        if found is None:
            found = self[name] = _load(name)
        return found

    def get(self, name: str, default: Any = None) -> Any:
        """The command of this name."""
        return self[name] if super().__contains__(name) else default

    def items(self) -> Any:
        """Names and commands."""
        return [(name, self[name]) for name in self]

    def values(self) -> Any:
        """All commands."""
        return [self[name] for name in self]


def _headline(name: str) -> TyperCommand:
    """A command without its options."""
    module = importlib.import_module(f"fedwise.cli.{name}")
    text = module.app.info.help if hasattr(module, "app") else inspect.getdoc(getattr(module, name))
    return TyperCommand(name, help=text)


def _load(name: str) -> Any:
    """One command, as a group of its own would hold it."""
    module = importlib.import_module(f"fedwise.cli.{name}")
    group = typer.Typer(**_SETTINGS, add_completion=False)
    group.callback()(lambda: None)
    if hasattr(module, "app"):
        group.add_typer(module.app, name=name)
    else:
        group.command(name, cls=Command)(getattr(module, name))
    made: Any = typer.main.get_command(group)
    return made.commands[name]


_SETTINGS: dict[str, Any] = {
    "no_args_is_help": True,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": "markdown",
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
app = typer.Typer(
    name="fedwise",
    cls=Commands,
    help="Choose who trains before anyone trains: private, proactive client selection. A file fedwise.toml in this "
    "folder or above gives options to all commands.",
    **_SETTINGS,
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"fedwise {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: bool = typer.Option(
        False, "--version", "-V", callback=_version, is_eager=True, help="Show the version."
    ),
    debug: bool = typer.Option(
        False, "--debug", help="Show the traceback of an error. Works after any command."
    ),
) -> None:
    """Choose who trains before anyone trains: private, proactive client selection."""
    path = find_project(Path.cwd())
    if path is not None:
        context.default_map = defaults_of(read_project(path))


def main() -> None:
    """Run the command line: one readable sentence for every expected error, a traceback with --debug."""
    # Loading libraries makes many objects that live to the end; to look through them again and again for garbage
    # takes a twentieth of the time of a short command.
    gc.set_threshold(100_000, 20, 100)
    debug = "--debug" in sys.argv
    arguments = [word for word in sys.argv[1:] if word != "--debug"]
    try:
        app(args=arguments, prog_name="fedwise")
    except FedwiseError as error:
        if debug:
            raise
        typer.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(0)


if __name__ == "__main__":
    main()
