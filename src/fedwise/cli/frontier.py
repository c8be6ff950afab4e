"""``fedwise frontier``: the best loss for every size, and what fairness costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from .console import JsonOption, SeedOption, print_json, print_table
from .inputs import bar
from .search_options import (
    AlphaOption,
    AnsweredOption,
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
    MethodOption,
    MinClientRecordsOption,
    MinRecordsOption,
    PerGroupOption,
    ReleasesArgument,
    TaskOption,
    ThreadsOption,
    WeightsOption,
    chosen_weights,
    read_constraints,
)

if TYPE_CHECKING:
    from ..search.frontiers import Frontier


def frontier(
    releases: ReleasesArgument,
    k: Annotated[str | None, typer.Option("-k", "--size", help="Sizes: 2:20.")] = None,
    pareto: Annotated[int, typer.Option(help="Points of the fairness–utility front; 0 for none.")] = 11,
    pareto_k: Annotated[
        int | None, typer.Option("--pareto-size", help="Size of the front; default the best.")
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
    answered: AnsweredOption = False,
    min_records: MinRecordsOption = None,
    min_client_records: MinClientRecordsOption = None,
    group_file: GroupFileOption = None,
    max_per_group: PerGroupOption = None,
    cost_file: CostFileOption = None,
    budget: BudgetOption = None,
    task: TaskOption = None,
    accept_flagged: FlaggedOption = False,
    threads: ThreadsOption = None,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Best loss and terms for every size, and the fairness–utility front.

    Example: fedwise frontier releases/ -k 2:20
    """
    from ..errors import FedwiseError
    from ..pool.pool import Pool
    from ..search.frontiers import frontier as search

    if pareto < 0 or pareto == 1:
        raise FedwiseError(f"pareto must be 0 or at least 2 points, got {pareto}")
    pool = Pool.load(releases, accept_flagged=accept_flagged, task=task)
    chosen = chosen_weights(weights, pool.plan.weights, alpha=alpha, beta=beta, gamma=gamma, lam=lam)
    rules = read_constraints(
        include, exclude, group_file, cost_file, max_per_group=max_per_group, budget=budget,
        min_records=min_records, min_client_records=min_client_records,
        exclude_suspect=exclude_suspect, answered=answered,
    )  # fmt: skip
    with bar("searching", "loss", digits=6) as best:
        found = search(
            pool, k, weights=chosen, estimator=estimator, method=method, constraints=rules, pareto_k=pareto_k,
            pareto_points=pareto, seed=seed, threads=threads, progress=best,
        )  # fmt: skip
    if json:
        print_json(found)
    else:
        show(found)


def show(found: Frontier) -> None:
    """The frontiers as tables for people."""
    from ..objective.weights import TERM_NAMES

    columns = ("k", "loss", "error", "direct", "proxy", "redundancy", "signal", "status", "clients")
    print_table(
        "best federation of each size",
        columns,
        [
            (
                point.k,
                f"{point.loss:.5f}",
                "" if point.std_error is None else f"{point.std_error:.2g}",
                *(_number(getattr(point.terms, name, None)) for name in TERM_NAMES),
                point.status or "",
                ", ".join(point.clients),
            )
            for point in found.points
        ],
        right=columns[:7],
    )
    if found.pareto:
        print_table(
            f"fairness–utility front at k = {found.pareto_k}",
            ("unfairness", "utility", "clients"),
            [(_number(t.unfairness), _number(t.utility), ", ".join(t.clients)) for t in found.pareto],
            right=("unfairness", "utility"),
        )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
