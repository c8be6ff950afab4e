"""fedwise report: one page that says why these clients."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .console import ForceOption, JsonOption, check_output, print_json, print_table, say
from .search_options import FlaggedOption


def report(
    run: Annotated[Path, typer.Argument(help="A run directory of fedwise train, or a selection.json.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the page.")] = Path(
        "report.html"
    ),
    releases: Annotated[
        Path | None, typer.Option("--releases", help="The releases it was selected from. [RUN/releases]")
    ] = None,
    audit: Annotated[
        Path | None, typer.Option("--audit", help="Outcome of fedwise audit. [RUN/audit.json]")
    ] = None,
    comparison: Annotated[
        Path | None, typer.Option("--comparison", help="Table of fedwise compare. [RUN/comparison.parquet]")
    ] = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            "--baseline", help="Another run to compare with, LABEL=RUN. Repeat a label for its seeds."
        ),
    ] = None,
    title: Annotated[str, typer.Option("--title", help="Heading of the page.")] = "",
    asked_by: Annotated[
        str, typer.Option("--asked-by", help="Who asked for the report; stands in its first lines.")
    ] = "",
    frontier: Annotated[
        bool,
        typer.Option("--frontier/--no-frontier", help="Search every size too, where that takes seconds."),
    ] = True,
    forecast: Annotated[
        bool,
        typer.Option("--forecast/--no-forecast", help="Predict the trained model's metrics from the tables."),
    ] = True,
    accept_flagged: FlaggedOption = False,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Write a report that justifies a selection: one file, works offline, prints well.

    Example: fedwise report runs/income --releases releases/ -o report.html

    With --json the same content goes to stdout and no page is written, unless --output is given too.
    """
    from ..errors import FedwiseError
    from ..reporting import Imprint
    from ..reporting import report as build

    target = None if json and output == Path("report.html") else output
    check_output(target, ".html", ".htm", force=force)
    baselines: dict[str, list[str | Path]] = {}
    for text in baseline or []:
        label, equals, path = text.partition("=")
        if not (equals and label.strip() and path):
            raise FedwiseError(f"--baseline must be written LABEL=RUN, got '{text}'")
        baselines.setdefault(label.strip(), []).append(path)
    made = build(
        run,
        target,
        releases=releases,
        audit=audit,
        comparison=comparison,
        baselines=baselines,
        accept_flagged=accept_flagged,
        frontier=frontier,
        forecast=forecast,
        imprint=Imprint(title=title, asked_by=asked_by),
        force=force,
    )
    if json:
        print_json(made.to_dict())
        return
    values = made.values
    if values.alerts or values.unchecked:
        found = [[alert.level, alert.title] for alert in values.alerts]
        print_table("alerts", ["", "what"], found + [["not checked", line] for line in values.unchecked])
    say(f"privacy of the releases: {values.privacy.label}")
    if values.privacy.training_label is not None:
        say(f"privacy of the training: {values.privacy.training_label}")
    say(f"report written to {output} ({output.stat().st_size / 1e6:.2f} MB)")
