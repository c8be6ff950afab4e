"""fedwise explore: try out trade-offs in a browser, on this machine only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .console import JsonOption, print_json, progress, stderr


def explore(
    releases: Annotated[Path, typer.Argument(help="Directory of release files.")],
    port: Annotated[int, typer.Option("--port", help="Port on 127.0.0.1; 0 takes a free one.")] = 0,
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
    estimator: Annotated[str, typer.Option(help="shrinkage, or plain as in the paper.")] = "shrinkage",
    accept_flagged: Annotated[
        bool, typer.Option("--accept-flagged", help="Keep releases that fail the screen.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Open a local page: move a weight, force a client in or out, and see the best federation at once.

    Example: fedwise explore releases/

    The page is served on 127.0.0.1 under a random address; nothing leaves this machine. Ctrl-C stops it.
    """
    from ..explore import Explorer
    from ..pool.pool import Pool, release_files

    files = release_files(releases)
    with progress() as bar:
        task = bar.add_task("reading releases", total=len(files), best="")
        pool = Pool.load(
            files, accept_flagged=accept_flagged, progress=lambda done, _: bar.update(task, completed=done)
        )
    page = Explorer(pool, releases=str(releases), estimator=estimator, port=port)
    if json:
        print_json({"url": page.url, "port": page.port, "clients": len(pool), "privacy": page.session.label})
    else:
        what = f"{len(pool)} clients, {page.session.label}"
        stderr().print(f"{what}, at {page.url}\nCtrl-C stops it.", markup=False, soft_wrap=True)
    try:
        if open_page:
            page.open_browser()
        page.run()
    except KeyboardInterrupt:
        stderr().print("stopped", markup=False)
