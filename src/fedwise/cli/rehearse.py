"""``fedwise rehearse``: what training would come to, from releases alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .console import ForceOption, JsonOption, SeedOption, check_output, note, print_json, print_table, say
from .inputs import (
    BatchOption,
    EpochsOption,
    LrOption,
    ModelOption,
    OptimizerOption,
    RoundsOption,
    SettingsOption,
    bar,
    names,
    options,
    target_names,
    training_settings,
)
from .search_options import FlaggedOption, ReleasesArgument, TaskOption
from .train import ClipOption, DeltaOption, EpsilonOption, SamplerOption, SensitiveOption, StrategyOption

if TYPE_CHECKING:
    from ..pool.pool import Pool
    from ..rehearsal.performance import Performance, Rehearsed
    from ..search.selection import Selection

FederationOption = Annotated[
    str, typer.Option("--federation", help="A selection file, or clients: CA,NY. The first to compare.")
]


RehearsalOutput = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        help="Run directory: the same command goes on after a stop, and fedwise report reads it. Or a .json file.",
    ),
]


AppOption = Annotated[
    Path | None,
    typer.Option(
        "--app",
        help="A Flower app to run, unchanged, on the doubles; node_config has the path of each as 'data'.",
    ),
]
AppConfigOption = Annotated[
    list[str] | None,
    typer.Option("--app-config", help="Of the app's run config, such as num-server-rounds=5. Repeatable."),
]


def rehearse(
    context: typer.Context,
    releases: ReleasesArgument,
    federation: FederationOption,
    settings: SettingsOption = None,
    rounds: RoundsOption = 50,
    strategy: StrategyOption = "fedavg",
    sampler: SamplerOption = "full",
    model: ModelOption = "mlp",
    optimizer: OptimizerOption = "adam",
    lr: LrOption = 1e-4,
    batch: BatchOption = 32,
    epochs: EpochsOption = 1,
    epsilon: EpsilonOption = None,
    delta: DeltaOption = 1e-5,
    clip: ClipOption = 1.0,
    use_sensitive: SensitiveOption = True,
    random: Annotated[int, typer.Option(help="Random federations of the same size to compare with.")] = 10,
    alone: Annotated[bool, typer.Option("--alone", help="Also rehearse each member alone.")] = False,
    stages: Annotated[int, typer.Option(help="How often noise, doubles and seeds are drawn anew.")] = 3,
    records: Annotated[
        int | None, typer.Option(help="Most records of a double. [as many as the client has]")
    ] = None,
    target: Annotated[
        str, typer.Option(help="Who judges the model: clients, CA,NY, or a file of public rows. [all]")
    ] = "",
    app: AppOption = None,
    app_config: AppConfigOption = None,
    output: RehearsalOutput = None,
    force: ForceOption = False,
    task: TaskOption = None,
    accept_flagged: FlaggedOption = False,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Train a federation on artificial doubles of its clients, before anyone trains.

    Example: fedwise rehearse releases/ --federation selection.json --rounds 50

    Released tables are all it uses: no privacy is spent and nobody is asked. Random federations of the same size and
    all clients together are rehearsed beside it.
    """
    from ..pool.pool import Pool
    from ..rehearsal.workflow import rehearse as run

    alone_file = output is not None and output.suffix == ".json"
    if alone_file:
        check_output(output, ".json", force=force)
    training = training_settings(
        context, settings, rounds=rounds, strategy=strategy, sampler=sampler, model=model, optimizer=optimizer, lr=lr,
        batch=batch, epochs=epochs, epsilon=epsilon, delta=delta, clip=clip, use_sensitive=use_sensitive,
    )  # fmt: skip
    pool = Pool.load(releases, accept_flagged=accept_flagged, task=task)
    if app is not None:
        rehearse_own(
            app, pool, read_federation(federation), app_config, records, seed, output, force=force, json=json
        )
        return
    folder = None if alone_file else output
    try:
        with bar("rehearsing", "AUC") as best:
            found = run(
                pool, read_selection(federation), training, random=random, alone=alone, stages=stages, records=records,
                target=target_names(target), seed=seed, progress=best, output=folder, force=force,
            )  # fmt: skip
    except KeyboardInterrupt:
        how = "with -o DIR it could go on" if folder is None else "the same command goes on"
        note(f"stopped; {how}")
        raise typer.Exit(130) from None
    if output is not None and alone_file:
        found.save(output, force=force)
    if json:
        print_json(found)
        return
    show(found)
    say(found.verdict())
    if output is not None:
        note(f"written to {output}")


def rehearse_own(
    app: Path, pool: Pool, clients: list[str], config: list[str] | None, records: int | None, seed: int,
    output: Path | None, *, force: bool, json: bool,
) -> None:  # fmt: skip
    """A Flower app on the doubles: what its clients report, round by round."""
    from ..flower.own_app import rehearse_app

    found = rehearse_app(app, pool, clients, run_config=options(config), records=records, seed=seed)
    if output is not None:
        found.save(output, force=force)
    if json:
        print_json(found)
        return
    rows = [(number, kind, metric, f"{value:.4f}") for number, kind, metric, value in found.metrics]
    columns = ("round", "kind", "metric", "mean over clients")
    print_table(f"{app.name} on doubles of {', '.join(clients)}", columns, rows, right=("round", columns[3]))
    for error in found.errors:
        note(f"a node failed: {error}")


def read_federation(text: str) -> list[str]:
    """Clients of a selection file, or the names themselves."""
    found = read_selection(text)
    return found if isinstance(found, list) else list(found.clients)


def read_selection(text: str) -> Selection | list[str]:
    """A selection file, or the names of clients."""
    from ..search.selection import Selection

    path = Path(text)
    return Selection.load(path) if path.suffix == ".json" else names(text)


def show(found: Rehearsed) -> None:
    """What to expect of the federation, beside the others."""
    from ..objective.interval import UNKNOWN
    from ..objective.metric import parse
    from ..rehearsal.performance import INTERVAL

    others, everyone = found.those("random"), found.those("all")
    rows = []
    for name in found.headline():
        figure = found.federation.figure(name)
        beside = found.comparison(name) if others else None
        rows.append(
            (
                parse(name).label,
                f"{figure.value:.4f}" if figure.known else UNKNOWN,
                f"{figure.low:.4f} to {figure.high:.4f}",
                "" if beside is None else f"{beside.others:.4f}",
                f"{everyone[0].value(name):.4f}" if everyone else "",
                "" if beside is None else beside.word,
            )
        )
    columns = ("metric", "expected", "90% interval", "random", "all", "beside random")
    print_table(f"rehearsal of {', '.join(found.federation.clients)}", columns, rows, right=columns[1:5])
    for one in found.those("alone"):
        say(_alone(one))
    note(f"note: {INTERVAL}")


def _alone(one: Performance) -> str:
    return f"{one.clients[0]} alone: AUC {one.value('auc'):.4f}, log loss {one.value('loss'):.4f}"
