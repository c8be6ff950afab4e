"""fedwise shortlist: who may still be in the best federation, and is asked again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .console import ForceOption, JsonOption, SeedOption, check_output, note, print_json, print_table, say
from .search_options import (
    BudgetOption,
    CostFileOption,
    ExcludeOption,
    ExcludeSuspectOption,
    FlaggedOption,
    GroupFileOption,
    IncludeOption,
    MaximiseOption,
    MinClientRecordsOption,
    MinRecordsOption,
    PerGroupOption,
    ReleasesArgument,
    SubjectOption,
    ThreadsOption,
    WeightsOption,
    forecast_objective,
    read_constraints,
)


def shortlist(
    releases: ReleasesArgument,
    k: Annotated[str, typer.Option("-k", "--size", help="Size of the federation: 5, or several: 5:15.")],
    chance: Annotated[
        float, typer.Option(help="A member of the best federation may be left out with this chance.")
    ] = 0.05,
    ask: Annotated[int | None, typer.Option(help="Ask exactly this many clients.")] = None,
    most: Annotated[int | None, typer.Option(help="Ask at most this many clients.")] = None,
    waves: Annotated[
        int | None,
        typer.Option(
            help="Ask them in this many waves; run the command again after each. [1, or 4 with a score]"
        ),
    ] = None,
    weights: WeightsOption = None,
    include: IncludeOption = "",
    exclude: ExcludeOption = "",
    exclude_suspect: ExcludeSuspectOption = False,
    min_records: MinRecordsOption = None,
    min_client_records: MinClientRecordsOption = None,
    group_file: GroupFileOption = None,
    max_per_group: PerGroupOption = None,
    cost_file: CostFileOption = None,
    budget: BudgetOption = None,
    maximise: MaximiseOption = None,
    subject_to: SubjectOption = "",
    redraws: Annotated[int, typer.Option(help="Redraws of the noise.")] = 40,
    accept_flagged: FlaggedOption = False,
    threads: ThreadsOption = None,
    seed: SeedOption = 0,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Also write the shortlist to this file.")
    ] = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Say who may still be in the best federation, so that only those answer the next stage of the plan.

    Example: fedwise shortlist releases/ -k 5 -o shortlist.json

    Send the file to the clients on it; each answers with: fedwise release plan.json DATA --client NAME --stage 2
    --shortlist shortlist.json
    """
    from ..objective.weights import Weights
    from ..pool.pool import Pool
    from ..search.elimination import shortlist as eliminate

    pool = Pool.load(releases, accept_flagged=accept_flagged)
    kept = Path(releases) / "shortlist.json"
    # The next wave replaces the shortlist of the one before, whose clients it holds.
    going_on = pool.shortlist is not None and not pool.shortlist.complete and output == kept
    check_output(output, ".json", force=force or going_on)
    rules = read_constraints(
        include, exclude, group_file, cost_file, max_per_group=max_per_group, budget=budget,
        min_records=min_records, min_client_records=min_client_records, exclude_suspect=exclude_suspect,
    )  # fmt: skip
    made = eliminate(
        pool, k, chance=chance, size=ask, most=most, waves=waves, redraws=redraws, seed=seed, threads=threads,
        constraints=rules, weights=Weights.load(weights) if weights else None,
        objective=forecast_objective(maximise, subject_to, model="mlp"),
    )  # fmt: skip
    if output is not None:
        made.save(output, force=force or going_on)
    if json:
        print_json(made)
        return
    say(made.headline)
    print_table(
        f"who is asked for stage {made.stage}",
        ["client", "asked", "spent", "why"],
        [[one.client, made.asks(one.client), f"{one.epsilon:g}", one.reason] for one in made.standings],
        right=["spent"],
    )
    if output is not None:
        names = ", ".join(made.added[:4]) + (" and the others that are asked" if len(made.added) > 4 else "")
        note(f"written to {output}; next: send it to {names}" if made.added else f"written to {output}")
        if not made.complete:
            place = "" if output == kept else f", with this file as {kept}"
            note(f"when they have answered, run this command again for the next wave{place}")
