"""fedwise flower: start a Flower app."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .console import ForceOption, JsonOption, note, print_json, say

app = typer.Typer(help="Proactive selection in a Flower app.", no_args_is_help=True)


@app.callback()
def _root() -> None:
    """Proactive selection in a Flower app."""


@app.command("new")
def new(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A new directory for the app.")],
    schema: Annotated[
        str, typer.Option("--schema", help="Name of a shipped schema to begin with.")
    ] = "income",
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Write a small, complete Flower app that runs in simulation and deployment as it is.

    Example: fedwise flower new my-federation
    """
    from ..flower.new import write_app

    written = write_app(directory, schema=schema, force=force)
    if json:
        print_json({"directory": str(directory), "files": [str(path) for path in written]})
        return
    say(f"wrote {len(written)} files to {directory}")
    note(
        f"next: cd {directory} && source env.sh && flwr run . --stream "
        "--federation-config 'num-supernodes=10 client-resources-num-cpus=1' -c 'expected=10'"
    )
