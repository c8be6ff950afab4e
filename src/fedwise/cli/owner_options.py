"""Options that check and release share: which file, whose rows of it, and which part of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..owner.balance import Balance
    from ..planning import Plan
    from ..schema.frame import FrameLike

ByOption = Annotated[
    str | None,
    typer.Option("--by", help="Column that divides the file into clients; each value is a client's name."),
]
PartOption = Annotated[
    str, typer.Option("--part", help="all rows, or train: only those that training will train on.")
]
LedgerOption = Annotated[
    Path | None,
    typer.Option(
        "--ledger", "-l", help="Budget ledger of this data set; with --by, a folder of them. [DATA.ledger.db]"
    ),
]

BudgetOption = Annotated[
    float | None,
    typer.Option(
        "--budget", help="Total epsilon when the ledger is new. [the plan's: room for this release only]"
    ),
]
OwnSchemaOption = Annotated[
    str | None,
    typer.Option("--schema", help="Your own copy of the schema: refuse a plan of another one."),
]
MaxEpsilonOption = Annotated[
    float | None,
    typer.Option("--max-epsilon", help="Refuse a plan that asks for a larger epsilon. [no limit]"),
]
MaxDeltaOption = Annotated[
    float | None, typer.Option("--max-delta", help="Refuse a plan whose delta is larger.")
]
DataVersionOption = Annotated[
    int | None,
    typer.Option("--data-version", help="Your own number of this data; raise it when the data changes."),
]
NoPrivacyOption = Annotated[
    bool,
    typer.Option("--no-privacy", help="Consent to a plan of infinite epsilon: exact tables, NO privacy."),
]
SimulatedOption = Annotated[
    bool, typer.Option("--simulated", help="Seeded noise for experiments on public data: NO privacy.")
]
NoiseSeedOption = Annotated[
    int | None, typer.Option("--seed", help="Seed of simulated noise; refused for a real release.")
]


def find_files(plan: Path | None, data: Path | None) -> tuple[Path, Path]:
    """The plan and the data, whose places are told from the files where they were swapped or one is left out."""
    from ..errors import FedwiseError
    from ..schema.frame import Format
    from .project import find_project, read_project

    project = find_project(Path.cwd())
    if plan is not None and Format.of(plan) is not None and project is not None:
        # One word, a data file: the plan is the project's.
        known = read_project(project)
        if "plan" in known and (data is None or str(data) == known.get("data")):
            return Path(known["plan"]), plan
    if plan is None or data is None:
        raise FedwiseError(
            "a plan and a data file must be named; write: PLAN DATA, such as plan.json people.csv"
        )
    if Format.of(plan) is not None and data.suffix.lower() == ".json":
        raise FedwiseError(f"the plan comes first and the data second, got '{plan}' and '{data}'; swap them")
    return plan, data


def parts_of(
    plan: Plan, data: Path, *, client: str | None, by: str | None, part: str, test: float, split_seed: int
) -> dict[str, FrameLike]:
    """Rows of each client of the file: all of them, or those that training will train on."""
    from ..data.division import divide
    from ..data.split import split
    from ..errors import FedwiseError

    if part not in ("all", "train"):
        raise FedwiseError(f"--part must be all or train, got '{part}'")
    if by is not None and client is not None:
        raise FedwiseError("clients are named by --by; leave out --client")
    frames: dict[str, FrameLike] = {client or "": data} if by is None else dict(divide(data, by))
    if part == "all":
        return frames
    return {
        name: split(frame, test, seed=split_seed, client=name, schema=plan.schema)[0]
        for name, frame in frames.items()
    }


def left(balance: Balance) -> str:
    """What is left of a budget, in words where it is only what rounding leaves."""
    return f"{balance.remaining:.4g} left" if balance.remaining > 0.01 * balance.epsilon else "nothing left"
