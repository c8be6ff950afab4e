"""``fedwise doubles``: artificial records of every client, from its release alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .console import ForceOption, JsonOption, SeedOption, note, print_json, progress, say
from .inputs import names, target_names
from .search_options import FlaggedOption, ReleasesArgument, TaskOption


def doubles(
    releases: ReleasesArgument,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder to write, a Parquet file for each client.")
    ],
    clients: Annotated[str, typer.Option(help="Only these, separated by commas.")] = "",
    records: Annotated[
        int | None,
        typer.Option(help="Most records of a double; default as many as the client has by estimate."),
    ] = None,
    target: Annotated[
        str,
        typer.Option(
            help="Also write target.parquet: people of these clients together (CA,NY or 'all') or public rows (a file)."
        ),
    ] = "",
    force: ForceOption = False,
    task: TaskOption = None,
    accept_flagged: FlaggedOption = False,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Draw artificial records that any training code can use in place of a client's own.

    Example: fedwise doubles releases/ -o doubles/

    They follow each client's estimated tables. Drawing them costs no privacy beyond that of the releases.
    """
    from ..doubling.draw import doubles as draw
    from ..errors import FedwiseError
    from ..pool.pool import Pool

    if records is not None and records < 1:
        raise FedwiseError(f"records must be at least 1, got {records}")
    pool = Pool.load(releases, accept_flagged=accept_flagged, task=task)
    wanted = names(clients) or None
    with progress() as bar:
        shown = bar.add_task("drawing doubles", total=len(wanted or pool.clients), best="")
        made = draw(
            pool,
            clients=wanted,
            records=records,
            target=list(pool.clients) if target == "all" else target_names(target),
            seed=seed,
            progress=lambda done, _: bar.update(shown, completed=done),
        )
    paths = made.save(output, force=force)
    if json:
        print_json(
            {
                "folder": str(output),
                "clients": {client: frame.height for client, frame in made.items()},
                "label": made.label,
                "seed": seed,
                "artificial": True,
            }
        )
        return
    say(made)
    note(f"wrote {len(paths)} files to {output}")
