"""``fedwise select``: choose the federation from a directory of releases."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .console import ForceOption, JsonOption, SeedOption, check_output, note, print_json, print_table
from .inputs import bar
from .search_options import (
    AlphaOption,
    BetaOption,
    BudgetOption,
    CostFileOption,
    EstimatorOption,
    ExcludeOption,
    ExcludeSuspectOption,
    FlaggedOption,
    GammaOption,
    GroupFileOption,
    IncludeOption,
    LamOption,
    MaximiseOption,
    MethodOption,
    MinClientRecordsOption,
    MinRecordsOption,
    PerGroupOption,
    ReleasesArgument,
    RepresentativeOption,
    SmallestOption,
    SubjectOption,
    TaskOption,
    ThreadsOption,
    WeightsOption,
    chosen_weights,
    forecast_objective,
    read_constraints,
)

if TYPE_CHECKING:
    from ..pool.pool import Pool
    from ..search.selection import Selection


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
    exclude_suspect: ExcludeSuspectOption = False,
    min_records: MinRecordsOption = None,
    min_client_records: MinClientRecordsOption = None,
    group_file: GroupFileOption = None,
    max_per_group: PerGroupOption = None,
    cost_file: CostFileOption = None,
    budget: BudgetOption = None,
    smallest: SmallestOption = None,
    representative: RepresentativeOption = None,
    maximise: MaximiseOption = None,
    subject_to: SubjectOption = "",
    forecast: Annotated[
        bool, typer.Option("--forecast", help="Also forecast the trained model's metrics (some seconds).")
    ] = False,
    model: Annotated[
        str, typer.Option(help="Model that will be trained, for forecasts: mlp or logistic.")
    ] = "mlp",
    task: TaskOption = None,
    accept_flagged: FlaggedOption = False,
    evidence: Annotated[str, typer.Option(help="none, quick or full.")] = "quick",
    bounds: Annotated[
        bool, typer.Option("--bounds", help="Also state the paper's bounds, and which assumptions fail.")
    ] = False,
    threads: ThreadsOption = None,
    seed: SeedOption = 0,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Also write the selection to this file.")
    ] = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Choose the federation with the lowest loss; say what is proved about it and what the noise leaves open.

    Example: fedwise select releases/ -k 5 --include CA -o selection.json
    """
    from ..pool.pool import Pool
    from ..search import select as search

    check_output(output, ".json", force=force)
    pool = Pool.load(releases, accept_flagged=accept_flagged, task=task)
    chosen = chosen_weights(weights, pool.plan.weights, alpha=alpha, beta=beta, gamma=gamma, lam=lam)
    objective = forecast_objective(maximise, subject_to, model=model)
    rules = read_constraints(
        include, exclude, group_file, cost_file, max_per_group=max_per_group, budget=budget,
        min_records=min_records, min_client_records=min_client_records, exclude_suspect=exclude_suspect,
    )  # fmt: skip
    with bar("searching", "loss", digits=6) as best:
        selection = search(
            pool, k, weights=chosen, estimator=estimator, method=method, objective=objective, constraints=rules,
            smallest=smallest, representative=representative, evidence=evidence,  # type: ignore[arg-type]
            seed=seed, threads=threads, progress=best,
        )  # fmt: skip
    if bounds:
        selection = with_paper_bounds(pool, selection)
    if forecast or objective is not None:
        from ..forecasting import with_forecast

        selection = with_forecast(selection, pool, objective=objective, model=model)
    if output is not None:
        selection.save(output, force=force)
    if json:
        print_json(selection)
        return
    show(selection, output)


def with_paper_bounds(pool: Pool, selection: Selection) -> Selection:
    """The selection with the paper's bounds in its certificate."""
    import msgspec

    from ..search.paper import paper_bounds

    return msgspec.structs.replace(selection, certificate=paper_bounds(pool, selection))


def show(selection: Selection, output: Path | None) -> None:
    """The selection as tables for people, its members alone on standard output, and where it was written."""
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
    typer.echo(",".join(selection.clients))
    if output is not None:
        note(f"written to {output}")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:+.5f}"


def _share(selection: Selection, client: str) -> str:
    return f"{selection.frequency.get(client, 0.0):.0%}" if selection.frequency else ""
