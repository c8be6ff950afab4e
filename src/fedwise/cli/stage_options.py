"""Options of an owner that is asked in stages, or allows less than it is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

OwnEpsilonOption = Annotated[
    float | None,
    typer.Option(
        "--epsilon", "-e", help="Your own total epsilon where you allow less than asked: more noise."
    ),
]
StageOption = Annotated[
    int, typer.Option("--stage", help="Stage of a plan with stages; beyond the first with --shortlist.")
]
ShortlistOption = Annotated[
    Path | None, typer.Option("--shortlist", help="The shortlist.json by which you are asked again.")
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Say what is asked and what it adds; release and charge nothing.")
]
