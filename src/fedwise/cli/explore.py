"""fedwise explore: try out trade-offs in a browser, on this machine only."""

from __future__ import annotations

from typing import Annotated

import typer

from .console import JsonOption, note, print_json, progress, say
from .search_options import EstimatorOption, FlaggedOption, ReleasesArgument, TaskOption


def explore(
    releases: ReleasesArgument,
    port: Annotated[int, typer.Option("--port", help="Port on 127.0.0.1; 0 takes a free one.")] = 0,
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
    estimator: EstimatorOption = "shrinkage",
    accept_flagged: FlaggedOption = False,
    task: TaskOption = None,
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
        shown = bar.add_task("reading releases", total=len(files), best="")
        pool = Pool.load(
            files,
            accept_flagged=accept_flagged,
            task=task,
            progress=lambda done, _: bar.update(shown, completed=done),
        )
    page = Explorer(pool, releases=str(releases), estimator=estimator, port=port)
    if json:
        print_json({"url": page.url, "port": page.port, "clients": len(pool), "privacy": page.session.label})
    else:
        what = f"{len(pool)} clients, {page.session.label}"
        say(f"{what}, at {page.url}\nCtrl-C stops it.")
    try:
        if open_page:
            page.open_browser()
        page.run()
    except KeyboardInterrupt:
        note("stopped")
