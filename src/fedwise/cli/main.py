"""The ``fedwise`` command."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import typer

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

app = typer.Typer(
    name="fedwise",
    help="Choose who trains before anyone trains: private, proactive client selection. A file fedwise.toml in this "
    "folder or above gives options to all commands.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
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


def _register() -> None:
    for name in COMMANDS:
        module = importlib.import_module(f"fedwise.cli.{name}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name)
        else:
            app.command(name, cls=Command)(getattr(module, name))


_register()


def main() -> None:
    """Run the command line: one readable sentence for every expected error, a traceback with --debug."""
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
