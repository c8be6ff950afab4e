"""fedwise plan: say what will be asked of every client, or draft a schema."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .console import ForceOption, JsonOption, check_output, note, print_json, say

if TYPE_CHECKING:
    from ..schema.schema import Schema


StagesOption = Annotated[
    str,
    typer.Option(
        "--stages",
        help="Total epsilon after each stage, such as 0.1,1: everybody answers the first, a shortlist the next.",
    ),
]
ScoreOption = Annotated[
    bool,
    typer.Option(
        "--score",
        help="The second stage asks everybody for one number, along what the first answers show: --stages 0.05,0.1,1.",
    ),
]
EditionOption = Annotated[
    int, typer.Option("--edition", help="2 and more ask the same tables again, of data that changed.")
]
JointOption = Annotated[
    bool,
    typer.Option(
        "--joint", help="Ask for each feature with groups and classes at once: better rehearsed gaps."
    ),
]
PublicSampleOption = Annotated[
    bool,
    typer.Option("--public-sample", help="The file of --init is public: fill in domains from its values."),
]


def plan(
    context: typer.Context,
    schema: Annotated[
        str | None, typer.Argument(help="A schema.toml, or the name of a shipped schema such as 'income'.")
    ] = None,
    epsilon: Annotated[
        str, typer.Option("--epsilon", "-e", help="Privacy budget; 'inf' means no privacy.")
    ] = "1.0",
    delta: Annotated[float, typer.Option("--delta", "-d", help="Failure probability of the promise.")] = 1e-5,
    weights: Annotated[Path | None, typer.Option("--weights", help="weights.toml of the loss.")] = None,
    calibration: Annotated[str, typer.Option(help="tight, or rdp as in the paper.")] = "tight",
    allocation: Annotated[str, typer.Option(help="weighted, or uniform as in the paper.")] = "weighted",
    stages: StagesOption = "",
    score: ScoreOption = False,
    edition: EditionOption = 1,
    joint: JointOption = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where to write the plan (or draft).")
    ] = None,
    init: Annotated[
        Path | None,
        typer.Option("--init", help="Draft a schema from the column names and types of this data file."),
    ] = None,
    public_sample: PublicSampleOption = False,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Plan which tables are asked of every client, with what noise, under which promise.

    Example: fedwise plan income.toml --epsilon 1 --delta 1e-5 -o plan.json

    Draft a schema first: fedwise plan --init people.parquet -o schema.toml
    """
    from ..errors import FedwiseError

    if public_sample and init is None:
        raise FedwiseError("--public-sample needs --init FILE: the public file to draft from")
    if init is not None:
        given = context.get_parameter_source("output")
        if given is not None and given.name == "DEFAULT_MAP":  # the project's place of the plan
            output = Path(schema) if schema is not None and schema.endswith(".toml") else None
        check_output(output, ".toml", force=force)
        _draft(init, output, public=public_sample, force=force, as_json=json)
        return
    import msgspec

    from ..errors import PlanError
    from ..objective.pfl import Weights
    from ..owner.examination import plan_warnings
    from ..planning import plan as make_plan

    check_output(output, ".json", force=force)
    if schema is None:
        raise PlanError("plan needs a schema: name a schema.toml, or draft one with --init DATA")
    try:
        budget = float(epsilon)
    except ValueError:
        raise PlanError(f"--epsilon must be a number or inf, got '{epsilon}'") from None
    totals = _totals(stages) if stages else None
    made = make_plan(
        load_schema(schema), totals[-1] if totals and epsilon == "1.0" else budget, delta=delta,
        weights=Weights.load(weights) if weights else None, calibration=calibration, allocation=allocation,
        stages=totals, score=score, edition=edition, joint=joint,
    )  # fmt: skip
    if output is not None:
        made.save(output, force=force)
    for finding in plan_warnings(made):
        note(f"warning: {finding.says}; {finding.cure}")
    if json:
        print_json(msgspec.to_builtins(made))
    else:
        say(made)
    if output is not None:
        note(f"written to {output}; next: fedwise release {output} DATA --client NAME")


def _totals(stages: str) -> list[float]:
    from ..errors import PlanError

    try:
        return [float(word) for word in stages.split(",")]
    except ValueError:
        raise PlanError(f"--stages must be numbers with commas, got '{stages}'; give 0.1,1") from None


def load_schema(name: str) -> Schema:
    """The schema in a file, or the shipped one of that name."""
    from ..schema.schema import Schema

    return Schema.load(name)


def _draft(data: Path, output: Path | None, *, public: bool, force: bool, as_json: bool) -> None:
    from ..files import write_new
    from ..schema.draft import draft_schema
    from ..schema.frame import column_types, read

    sample = read(data) if public else None
    text = draft_schema(column_types(data), name=data.name.partition(".")[0], sample=sample)
    if output is not None:
        write_new(output, text.encode(), force=force)
    if as_json:
        print_json({"draft": text, "output": str(output) if output else None})
    elif output is None:
        typer.echo(text)
    if public:
        note("This is a draft from the values of a public file. Confirm every line before clients are asked.")
        return
    note(
        "This is a draft from column names and types only. Fill in every domain from public knowledge "
        "(a data dictionary, a form), never from the rows: a domain read from data is not private."
    )
