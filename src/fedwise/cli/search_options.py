"""Options that select and frontier share: weights, method and constraints, and how each is read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from .inputs import TaskOption as TaskOption
from .inputs import names

if TYPE_CHECKING:
    from ..objective.weights import Weights
    from ..rehearsal.objective import Rehearsal
    from ..search.constraints import Constraints
    from ..search.problem import Objective

ReleasesArgument = Annotated[Path, typer.Argument(help="Directory of release files, or one file.")]
WeightsOption = Annotated[
    Path | None, typer.Option("--weights", help="TOML file of weights (fedwise calibrate).")
]
AlphaOption = Annotated[float | None, typer.Option(help="Weight of direct bias.")]
BetaOption = Annotated[float | None, typer.Option(help="Weight of proxy bias.")]
GammaOption = Annotated[float | None, typer.Option(help="Weight of redundancy.")]
LamOption = Annotated[float | None, typer.Option(help="Weight of signal.")]
MethodOption = Annotated[
    str,
    typer.Option(help="auto, exact, annealing, paper, greedy-forward, greedy-backward or greedy-exchange."),
]
EstimatorOption = Annotated[str, typer.Option(help="shrinkage, or plain as in the paper.")]
IncludeOption = Annotated[str, typer.Option(help="Clients that must take part: CA,NY.")]
ExcludeOption = Annotated[str, typer.Option(help="Clients that must not take part.")]
ExcludeSuspectOption = Annotated[
    bool,
    typer.Option(
        "--exclude-suspect",
        help="Leave out clients that inspect --quality suspects or doubts, while enough are left.",
    ),
]
AnsweredOption = Annotated[
    bool, typer.Option("--answered", help="Choose among those who have answered the last stage.")
]
MinRecordsOption = Annotated[float | None, typer.Option(help="Least total of (noisy) records.")]
MinClientRecordsOption = Annotated[
    float | None, typer.Option(help="Least (noisy) records of each member: keeps out near-empty clients.")
]
GroupFileOption = Annotated[Path | None, typer.Option(help="CSV with columns client,group.")]
PerGroupOption = Annotated[int | None, typer.Option(help="Most clients of one group.")]
CostFileOption = Annotated[Path | None, typer.Option(help="CSV with columns client,cost.")]
BudgetOption = Annotated[float | None, typer.Option(help="Most the federation may cost.")]
FlaggedOption = Annotated[bool, typer.Option("--accept-flagged", help="Keep releases that fail the screen.")]
ThreadsOption = Annotated[
    int | None, typer.Option(help="Worker threads; the answer does not depend on them.")
]
MaximiseOption = Annotated[
    str | None,
    typer.Option(help="Maximise this forecast metric instead: auc, balanced_accuracy, f1, eod@rate, …"),
]
SubjectOption = Annotated[
    str,
    typer.Option(
        help="Limits for --maximise and --rehearse: eod@rate=0.1,auc=0.8 (gaps and losses at most, others at least)."
    ),
]
RehearseOption = Annotated[
    str | None,
    typer.Option(
        help="Maximise this metric of the training itself, rehearsed on artificial doubles (minutes): auc, eod, …"
    ),
]
TrialsOption = Annotated[
    int | None, typer.Option(help="Trainings of --rehearse in all, about. [160]", show_default=False)
]
RunOption = Annotated[
    Path | None,
    typer.Option("--run", help="Run directory of --rehearse: the same command goes on after a stop."),
]
SecondsOption = Annotated[
    float | None, typer.Option(help="Seconds after which --rehearse begins no further training.")
]
SizeOption = Annotated[str | None, typer.Option("-k", "--size", help="Federation size: 5, or a range 5:15.")]
RehearsalOption = Annotated[
    bool,
    typer.Option("--rehearsal/--no-rehearsal", help="Rehearse the chosen federation quickly (some seconds)."),
]
ForecastOption = Annotated[
    bool, typer.Option("--forecast", help="Also forecast the trained model's metrics (some seconds).")
]
PlannedModelOption = Annotated[
    str, typer.Option(help="Model that will be trained, for forecasts and rehearsals: mlp or logistic.")
]
EvidenceOption = Annotated[str, typer.Option(help="none (no quick rehearsal either), quick or full.")]
BoundsOption = Annotated[
    bool, typer.Option("--bounds", help="Also state the paper's bounds, and which assumptions fail.")
]
SelectionOutput = Annotated[
    Path | None, typer.Option("-o", "--output", help="Also write the selection to this file.")
]
SmallestOption = Annotated[
    float | None, typer.Option(help="Smallest federation whose loss is within this of the best.")
]
RepresentativeOption = Annotated[
    float | None,
    typer.Option(help="Smallest federation within this many bits a table of the whole pool."),
]


def chosen_weights(path: Path | None, default: Weights, **given: float | None) -> Weights:
    """Weights of the plan, or of a file, with single ones overridden."""
    import msgspec

    from ..objective.weights import Weights

    base = Weights.load(path) if path is not None else default
    return Weights(
        **{**msgspec.to_builtins(base), **{key: value for key, value in given.items() if value is not None}}
    )


def read_limits(subject_to: str) -> dict[str, float | Literal["random"]]:
    """``spd=0.05,eod:SEX=random`` as limits by metric."""
    from ..errors import FedwiseError

    limits: dict[str, float | Literal["random"]] = {}
    for part in names(subject_to):
        if "<" in part or ">" in part:
            raise FedwiseError(
                f"--subject-to must look like eod=0.1,auc=0.8, got '{part}'; write = alone: gaps and losses are at "
                "most that, other metrics at least"
            )
        metric, _, text = part.partition("=")
        try:
            limits[metric.strip()] = "random" if text.strip() == "random" else float(text)
        except ValueError:
            raise FedwiseError(f"--subject-to must look like spd=0.05,eod=0.1, got '{part}'") from None
    return limits


def forecast_objective(maximise: str | None, subject_to: str, *, model: str = "mlp") -> Objective | None:
    """The forecast as objective, from ``balanced_accuracy`` and ``spd=0.05,eod=0.1``."""
    from ..errors import FedwiseError

    limits = {}
    for metric, limit in read_limits(subject_to).items():
        if limit == "random":
            raise FedwiseError(f"limit of {metric} must be a number in a forecast; 'random' needs --rehearse")
        limits[metric] = float(limit)
    if maximise is None:
        if limits:
            raise FedwiseError(
                "--subject-to needs --maximise METRIC or --rehearse METRIC, such as --maximise balanced_accuracy"
            )
        return None
    from ..forecasting import Forecast, Settings

    return Forecast(maximise, subject_to=limits, settings=Settings.for_model(model))


def rehearsal_objective(
    rehearse: str | None, subject_to: str, maximise: str | None, *, model: str, settings: Path | None,
    trials: int | None, seconds: float | None, run: Path | None,
) -> Rehearsal | None:  # fmt: skip
    """The rehearsal as objective, if asked for; its settings from a file, or the defaults with another model."""
    from ..errors import FedwiseError

    if rehearse is None:
        given = {"--trials": trials, "--seconds": seconds, "--settings": settings, "--run": run}
        for name, value in given.items():
            if value is not None:
                raise FedwiseError(
                    f"{name} must come with --rehearse, got no metric; name one: --rehearse auc"
                )
        return None
    from ..rehearsal.objective import TRIALS, Rehearsal
    from ..training.settings import Training

    if maximise is not None:
        raise FedwiseError("objective must be one of --maximise and --rehearse; drop the other")
    training = Training(model=model) if settings is None else Training.load(settings)
    return Rehearsal(
        rehearse, subject_to=read_limits(subject_to), settings=training,
        trials=TRIALS if trials is None else trials, seconds=seconds, output=run,
    )  # fmt: skip


def read_constraints(
    include: str, exclude: str, group_file: Path | None, cost_file: Path | None, **numbers: Any
) -> Constraints:
    """The constraints, from names with commas, two CSV files, and the numbers as they are."""
    from ..search.constraints import Constraints

    return Constraints(
        include=tuple(names(include)),
        exclude=tuple(names(exclude)),
        groups=read_pairs(group_file, "group"),
        costs=read_costs(cost_file),
        **numbers,
    )


def read_pairs(path: Path | None, column: str) -> dict[str, Any]:
    """Client and value pairs of a CSV with the header ``client,<column>``."""
    import csv

    from ..errors import FedwiseError

    if path is None:
        return {}
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            if not {"client", column} <= set(reader.fieldnames or ()):
                raise FedwiseError(f"{column} file '{path}' must have the header client,{column}")
            found: dict[str, Any] = {}
            for row in reader:
                client, value = (row["client"] or "").strip(), (row[column] or "").strip()
                if not client or not value:
                    raise FedwiseError(
                        f"{column} file '{path}' line {reader.line_num} must hold a client and a {column}"
                    )
                if client in found:
                    raise FedwiseError(
                        f"{column} file '{path}' names client '{client}' twice; remove one line"
                    )
                found[client] = value
            return found
    except (OSError, UnicodeDecodeError, csv.Error):
        raise FedwiseError(f"{column} file '{path}' cannot be read as CSV; check the path") from None


def read_costs(path: Path | None) -> dict[str, float]:
    """Client and cost pairs of a CSV."""
    from ..errors import FedwiseError

    costs = {}
    for client, text in read_pairs(path, "cost").items():
        try:
            costs[client] = float(text)
        except ValueError:
            raise FedwiseError(
                f"cost file '{path}' must give a number for client '{client}', got '{text}'"
            ) from None
    return costs
