"""``fedwise select``: choose the federation from a directory of releases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from .console import ForceOption, JsonOption, SeedOption, check_output, note, print_json, print_table
from .inputs import SettingsOption, bar
from .search_options import (
    AlphaOption,
    AnsweredOption,
    BetaOption,
    BoundsOption,
    BudgetOption,
    CostFileOption,
    EstimatorOption,
    EvidenceOption,
    ExcludeOption,
    ExcludeSuspectOption,
    FlaggedOption,
    ForecastOption,
    GammaOption,
    GroupFileOption,
    IncludeOption,
    LamOption,
    MaximiseOption,
    MethodOption,
    MinClientRecordsOption,
    MinRecordsOption,
    PerGroupOption,
    PlannedModelOption,
    RehearsalOption,
    RehearseOption,
    ReleasesArgument,
    RepresentativeOption,
    RunOption,
    SecondsOption,
    SelectionOutput,
    SizeOption,
    SmallestOption,
    SubjectOption,
    TaskOption,
    ThreadsOption,
    TrialsOption,
    WeightsOption,
    chosen_weights,
    forecast_objective,
    read_constraints,
    rehearsal_objective,
)

if TYPE_CHECKING:
    from pathlib import Path

    from ..pool.pool import Pool
    from ..search.selection import Selection


def select(
    releases: ReleasesArgument,
    k: SizeOption = None,
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
    smallest: SmallestOption = None,
    representative: RepresentativeOption = None,
    maximise: MaximiseOption = None,
    rehearse: RehearseOption = None,
    subject_to: SubjectOption = "",
    trials: TrialsOption = None,
    seconds: SecondsOption = None,
    run: RunOption = None,
    settings: SettingsOption = None,
    rehearsal: RehearsalOption = True,
    forecast: ForecastOption = False,
    model: PlannedModelOption = "mlp",
    task: TaskOption = None,
    accept_flagged: FlaggedOption = False,
    evidence: EvidenceOption = "quick",
    bounds: BoundsOption = False,
    threads: ThreadsOption = None,
    seed: SeedOption = 0,
    output: SelectionOutput = None,
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
    by_rehearsal = rehearsal_objective(
        rehearse, subject_to, maximise, model=model, settings=settings, trials=trials, seconds=seconds, run=run,
    )  # fmt: skip
    by_forecast = None if by_rehearsal else forecast_objective(maximise, subject_to, model=model)
    rules = read_constraints(
        include, exclude, group_file, cost_file, max_per_group=max_per_group, budget=budget,
        min_records=min_records, min_client_records=min_client_records, exclude_suspect=exclude_suspect,
        answered=answered,
    )  # fmt: skip
    with bar("rehearsing" if by_rehearsal else "searching", "loss", digits=6) as best:
        selection = search(
            pool, k, weights=chosen, estimator=estimator, method=method, objective=by_rehearsal or by_forecast,
            constraints=rules, smallest=smallest, representative=representative,
            evidence=evidence, seed=seed, threads=threads, progress=best,  # type: ignore[arg-type]
        )  # fmt: skip
    selection = with_paper_bounds(pool, selection) if bounds else selection
    if forecast or by_forecast is not None:
        from ..forecasting import with_forecast

        selection = with_forecast(selection, pool, objective=by_forecast, model=model)
    if rehearsal and evidence != "none" and selection.status != "interrupted":
        selection = rehearsed_quickly(selection, pool, model=model, seed=seed)
    _give(selection, output, force=force, json=json)


def _give(selection: Selection, output: Path | None, *, force: bool, json: bool) -> None:
    """Write the selection, and print it for people or programs; refuse it where it misses a limit."""
    if output is not None:
        selection.save(output, force=force)
    if json:
        print_json(selection)
    else:
        show(selection, output)
    refuse_missed(selection)


def refuse_missed(selection: Selection) -> None:
    """Exit code 4 where the best federation found does not keep the limits that were asked for."""
    from ..errors import Infeasible

    missed = [flag for flag in selection.flags if flag.startswith("limit not kept")]
    if missed:
        raise Infeasible(
            f"no federation was found that keeps the limits ({'; '.join(missed)}); relax --subject-to"
        )


def rehearsed_quickly(selection: Selection, pool: Pool, *, model: str, seed: int) -> Selection:
    """The selection with a quick rehearsal; one line says why where there can be none."""
    from ..errors import FedwiseError, MissingExtra
    from ..rehearsal.quick import with_rehearsal

    try:
        with bar("rehearsing", "AUC") as best:
            found = with_rehearsal(selection, pool, model=model, seed=seed, progress=best)
    except MissingExtra:
        note("rehearsal left out: it needs pip install 'fedwise[train]'")
        return selection
    except FedwiseError as error:
        note(f"rehearsal left out: {error}")
        return selection
    if found.rehearsal is None:
        note("rehearsal left out: the pool is too large for a quick one; use fedwise rehearse")
    return found


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
    if selection.rehearsal is not None:
        from ..objective.metric import parse

        columns = ("metric", "expected", "random", "all")
        rows = [
            (parse(m.metric).label, _plain(m.value) or "not known", _plain(m.random), _plain(m.everyone))
            for m in selection.rehearsal.metrics
        ]
        title = "rehearsal on artificial doubles" + (", cut short" if selection.rehearsal.shortened else "")
        print_table(title, columns, rows, right=columns[1:])
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


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _share(selection: Selection, client: str) -> str:
    return f"{selection.frequency.get(client, 0.0):.0%}" if selection.frequency else ""
