"""``fedwise select``: choose the federation from a directory of releases."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .console import ForceOption, JsonOption, SeedOption, print_json, print_table, progress, stderr

if TYPE_CHECKING:
    from ..objective.pfl import Weights
    from ..search.problem import Objective
    from ..search.selection import Selection

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


def select(
    releases: ReleasesArgument,
    k: Annotated[
        str | None, typer.Option("-k", "--size", help="Federation size: 5, or a range 5:15.")
    ] = None,
    weights: WeightsOption = None,
    alpha: AlphaOption = None,
    beta: BetaOption = None,
    gamma: GammaOption = None,
    lam: LamOption = None,
    method: MethodOption = "auto",
    estimator: EstimatorOption = "shrinkage",
    include: IncludeOption = "",
    exclude: ExcludeOption = "",
    min_records: MinRecordsOption = None,
    min_client_records: MinClientRecordsOption = None,
    group_file: GroupFileOption = None,
    max_per_group: PerGroupOption = None,
    cost_file: CostFileOption = None,
    budget: BudgetOption = None,
    smallest: Annotated[
        float | None, typer.Option(help="Smallest federation whose loss is within this of the best.")
    ] = None,
    representative: Annotated[
        float | None,
        typer.Option(help="Smallest federation within this many bits a table of the whole pool."),
    ] = None,
    maximise: Annotated[
        str | None,
        typer.Option(help="Maximise this forecast metric instead: auc, balanced_accuracy, f1, eod@rate, …"),
    ] = None,
    subject_to: Annotated[
        str,
        typer.Option(
            help="Limits for --maximise: eod@rate=0.1,auc=0.8 (gaps and losses at most, others at least)."
        ),
    ] = "",
    forecast: Annotated[
        bool, typer.Option("--forecast", help="Also forecast the trained model's metrics (some seconds).")
    ] = False,
    model: Annotated[
        str, typer.Option(help="Model that will be trained, for forecasts: mlp or logistic.")
    ] = "mlp",
    accept_flagged: FlaggedOption = False,
    evidence: Annotated[str, typer.Option(help="none, quick or full.")] = "quick",
    threads: ThreadsOption = None,
    seed: SeedOption = 0,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Also write the selection to this file.")
    ] = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Choose the federation with the lowest loss, with error bars and a certificate.

    Example: fedwise select releases/ -k 5 --include CA -o selection.json
    """
    from ..files import refuse_existing
    from ..pool.pool import Pool
    from ..search import Constraints
    from ..search import select as search

    if output is not None:
        refuse_existing(output, force=force)
    pool = Pool.load(releases, accept_flagged=accept_flagged)
    chosen = chosen_weights(weights, pool.plan.weights, alpha=alpha, beta=beta, gamma=gamma, lam=lam)
    objective = forecast_objective(maximise, subject_to, model=model)
    rules = Constraints(
        include=names(include),
        exclude=names(exclude),
        min_records=min_records,
        min_client_records=min_client_records,
        groups=read_pairs(group_file, "group"),
        max_per_group=max_per_group,
        costs=read_costs(cost_file),
        budget=budget,
    )
    with progress() as bar:
        task = bar.add_task("searching", total=1, best="")
        selection = search(
            pool,
            k,
            weights=chosen,
            estimator=estimator,
            method=method,
            objective=objective,
            constraints=rules,
            smallest=smallest,
            representative=representative,
            evidence=evidence,  # type: ignore[arg-type]
            seed=seed,
            threads=threads,
            progress=lambda done, total, best: bar.update(
                task, completed=done, total=max(total, 1), best=f"best loss {best:.6f}"
            ),
        )
    if forecast or objective is not None:
        from ..forecasting import with_forecast

        selection = with_forecast(selection, pool, objective=objective, model=model)
    if output is not None:
        selection.save(output, force=force)
    if json:
        print_json(selection)
    else:
        show(selection)
        typer.echo(",".join(selection.clients))
    if output is not None and not json:
        stderr().print(f"written to {output}", markup=False)


def forecast_objective(maximise: str | None, subject_to: str, *, model: str = "mlp") -> Objective | None:
    """The forecast as objective, from ``balanced_accuracy`` and ``spd=0.05,eod=0.1``."""
    from ..errors import FedwiseError

    limits = {}
    for part in names(subject_to):
        metric, _, text = part.partition("=")
        try:
            limits[metric.strip()] = float(text)
        except ValueError:
            raise FedwiseError(f"--subject-to must look like spd=0.05,eod=0.1, got '{part}'") from None
    if maximise is None:
        if limits:
            raise FedwiseError("--subject-to needs --maximise METRIC, such as --maximise balanced_accuracy")
        return None
    from ..forecasting import Forecast, Settings

    return Forecast(maximise, subject_to=limits, settings=Settings.for_model(model))


def show(selection: Selection) -> None:
    """The selection as tables for people."""
    print_table("selection", ("", ""), selection.rows())
    if selection.contributions:
        print_table(
            "members (negative lowers the loss)",
            ("client", "leave one out", "Shapley", "chosen again"),
            [
                (c.client, _number(c.leave_one_out), _number(c.shapley), _share(selection, c.client))
                for c in selection.contributions
            ],
            right=("leave one out", "Shapley", "chosen again"),
        )
    if selection.sizes:
        print_table(
            "sizes",
            ("k", "loss", "clients"),
            [(s.k, f"{s.loss:.6f}", ", ".join(s.clients)) for s in selection.sizes],
            right=("k", "loss"),
        )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:+.5f}"


def _share(selection: Selection, client: str) -> str:
    return f"{selection.frequency.get(client, 0.0):.0%}" if selection.frequency else ""


def chosen_weights(path: Path | None, default: Weights, **given: float | None) -> Weights:
    """Weights of the plan, or of a file, with single ones overridden."""
    import msgspec

    from ..objective.pfl import Weights

    base = Weights.load(path) if path is not None else default
    return Weights(
        **{**msgspec.to_builtins(base), **{key: value for key, value in given.items() if value is not None}}
    )


def names(text: str) -> tuple[str, ...]:
    """Client names from a comma-separated option."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


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
