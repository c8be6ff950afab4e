"""fedwise train: train the chosen federation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .console import ForceOption, JsonOption, note, print_json, print_table, say
from .inputs import (
    BatchOption,
    DataOption,
    DivideOption,
    EpochsOption,
    FractionOption,
    LrOption,
    ModelOption,
    OptimizerOption,
    RoundsOption,
    SchemaOption,
    SettingsOption,
    SplitSeedOption,
    SyntheticOption,
    TaskOption,
    TestOption,
    bar,
    find_schema,
    name_source,
    names,
    options,
    training_settings,
)

if TYPE_CHECKING:
    from ..planning import Plan
    from ..search.selection import Selection
    from ..training.accounting import Cost
    from ..training.records import Record
    from ..training.run import Run

OutputOption = Annotated[Path, typer.Option("--output", "-o", help="Run directory.")]
SelectionOption = Annotated[
    Path | None,
    typer.Option("--selection", help="Selection file (fedwise select --json): train its clients."),
]
ClientsOption = Annotated[
    str | None, typer.Option("--clients", help="Train these clients: CA,NY,… [all with data]")
]
ReleasesOption = Annotated[
    Path | None,
    typer.Option("--releases", help="Directory of releases: select k clients from it, then train."),
]
SizeOption = Annotated[
    int, typer.Option("-k", "--size", help="Size of the federation selected from --releases.")
]
PlanOption = Annotated[
    Path | None,
    typer.Option("--plan", help="Plan the clients answered: joint privacy of release and training."),
]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Go on after the last checkpoint of the run.")]
StrategyOption = Annotated[
    str,
    typer.Option(
        "--strategy",
        help="fedavg, fedprox, scaffold, fedadam, fairfed, fedfb, fade_weights, fade_subset, or robust: median, "
        "trimmed_mean, krum, multi_krum, fltrust.",
    ),
]
StrategySetOption = Annotated[
    list[str] | None, typer.Option("--set", help="Option of the strategy, such as mu=0.1. Repeatable.")
]
SamplerOption = Annotated[
    str,
    typer.Option(
        "--sampler", help="full, uniform, ucb_cs, threshold, fed_sampling, power_of_choice or cluster_fl."
    ),
]
SamplerSetOption = Annotated[
    list[str] | None, typer.Option("--sampler-set", help="Option of the sampler, such as d=4. Repeatable.")
]
EngineOption = Annotated[str, typer.Option("--engine", help="auto, fast (kernels) or torch (autograd).")]
SensitiveOption = Annotated[
    bool, typer.Option("--use-sensitive/--no-sensitive", help="Sensitive attributes as model inputs.")
]
EpsilonOption = Annotated[
    float | None,
    typer.Option("--epsilon", help="Train with DP-SGD under this epsilon. [no privacy in training]"),
]
DeltaOption = Annotated[float, typer.Option("--delta", help="Delta of DP-SGD.")]
ClipOption = Annotated[float, typer.Option("--clip", help="Largest norm of one row's gradient in DP-SGD.")]
BootstrapOption = Annotated[
    int, typer.Option("--bootstrap", help="Bootstrap samples of the final intervals.")
]
RunSeedOption = Annotated[
    int | None,
    typer.Option(
        "--seed",
        help="Seed of every random choice. With --epsilon it draws the privacy noise too, and the run is marked "
        "simulated. [0, and noise from the operating system]",
    ),
]

#: Metrics of the table for people; every one is in the run directory.
_SHOWN = (
    "auc", "macro_auc", "macro_f1", "mae", "rmse", "r2", "error_gap", "loss", "brier", "accuracy",
    "accuracy@rate", "balanced_accuracy", "balanced_accuracy@rate", "f1", "f1@rate",
    "spd", "spd@rate", "eod", "eod@rate",
)  # fmt: skip
_BOTH = (
    "@rate is at the threshold where predicted positives equal the label rate; without it, at probability ½, where "
    "a model that says yes more often can look better."
)
#: What a table, a note and a reader of either must know about seeded noise.
SIMULATED = "simulated: the noise was drawn from --seed and protects nobody"


def train(
    context: typer.Context,
    output: OutputOption,
    data: DataOption = None,
    by: DivideOption = None,
    synthetic: SyntheticOption = None,
    schema: SchemaOption = None,
    task: TaskOption = None,
    selection: SelectionOption = None,
    clients: ClientsOption = None,
    releases: ReleasesOption = None,
    k: SizeOption = 5,
    plan: PlanOption = None,
    resume: ResumeOption = False,
    settings: SettingsOption = None,
    rounds: RoundsOption = 50,
    strategy: StrategyOption = "fedavg",
    strategy_set: StrategySetOption = None,
    sampler: SamplerOption = "full",
    sampler_set: SamplerSetOption = None,
    fraction: FractionOption = 0.5,
    optimizer: OptimizerOption = "adam",
    lr: LrOption = 1e-4,
    batch: BatchOption = 32,
    epochs: EpochsOption = 1,
    model: ModelOption = "mlp",
    engine: EngineOption = "auto",
    use_sensitive: SensitiveOption = True,
    test: TestOption = 0.2,
    split_seed: SplitSeedOption = 0,
    epsilon: EpsilonOption = None,
    delta: DeltaOption = 1e-5,
    clip: ClipOption = 1.0,
    bootstrap: BootstrapOption = 200,
    seed: RunSeedOption = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Train a federation and test it on the held-out rows of all clients.

    Example: fedwise train --data clients/ --schema income --selection selection.json -o runs/best

    Writes a run directory: model.safetensors with its schema, metrics.parquet, and a checkpoint after every
    round; --resume goes on after a stop and ends with the identical result (up to privacy noise).
    """
    from ..planning import Plan
    from ..training.workflow import resume_run
    from ..training.workflow import train as train_run

    asked = None if plan is None else Plan.load(plan)
    try:
        if resume:
            with bar("training", "accuracy") as show:
                run = resume_run(output, frames=data, plan=asked, progress=show)
        else:
            asked_settings = training_settings(
                context, settings, rounds=rounds, strategy=strategy, strategy_options=options(strategy_set),
                sampler=sampler, sampler_options=options(sampler_set), fraction=fraction, optimizer=optimizer, lr=lr,
                batch=batch, epochs=epochs, model=model, engine=engine, use_sensitive=use_sensitive, test=test,
                clip=clip, split_seed=split_seed, epsilon=epsilon, delta=delta, replicates=bootstrap, seed=seed,
            )  # fmt: skip
            source = name_source(data, synthetic, by)
            wanted, pooled = _federation(selection, clients, releases, k, seed or 0, task)
            known = find_schema(schema, synthetic, asked := asked or pooled, task=task)
            with bar("training", "accuracy") as show:
                run = train_run(
                    source,
                    known,
                    wanted,
                    asked_settings,
                    output=output,
                    plan=asked,
                    force=force,
                    progress=show,
                )
    except KeyboardInterrupt:
        typer.echo(f"stopped; go on with: fedwise train --resume -o {output}", err=True)
        raise
    _show(run, json=json)


def _federation(
    selection: Path | None, clients: str | None, releases: Path | None, k: int, seed: int, task: str | None
) -> tuple[Selection | list[str] | Path | None, Plan | None]:
    """Who trains (nobody named: everyone), and the plan of a pool."""
    from ..errors import FedwiseError

    if sum(option is not None for option in (selection, clients, releases)) > 1:
        raise FedwiseError(
            "federation must come from one of --selection, --clients and --releases; drop the others"
        )
    if clients is not None:
        members = names(clients)
        if not members:
            raise FedwiseError("--clients must name at least one client, such as CA,NY")
        return members, None
    if releases is not None:
        from ..pool.pool import Pool
        from ..search import select

        loaded = Pool.load(releases)
        return select(loaded, k, task=task, seed=seed), loaded.plan
    return selection, None


def _show(run: Run, *, json: bool) -> None:
    from ..training.convergence import still_falling

    falling = still_falling(run.metrics())
    for line in (*run.notes, *([falling] if falling else [])):
        note(f"note: {line}")
    last, costs = run.final(), run.costs()
    if json:
        print_json(
            {
                "run": str(run.path),
                "federation": list(run.manifest.federation),
                "rounds": last[0].round,
                "metrics": [_plain(r, ("rows", "metric", "attribute", "value", "low", "high")) for r in last],
                "privacy": [_plain(cost, cost.__struct_fields__) for cost in costs],
                "simulated": run.simulated,
            }
        )
        return
    rows = []
    place = {name: i for i, name in enumerate(_SHOWN)}
    for r in sorted(last, key=lambda r: (r.attribute != "", r.attribute, place.get(r.metric, 0))):
        if r.rows == "all" and r.value == r.value and r.metric in place:
            own = next(o for o in last if (o.rows, o.metric, o.attribute) == ("own", r.metric, r.attribute))
            name = f"{r.metric} by {r.attribute}" if r.attribute else r.metric
            rows.append(
                (
                    name,
                    f"{r.value:.4f}",
                    "" if r.low != r.low else f"{r.low:.4f} to {r.high:.4f}",
                    f"{own.value:.4f}",
                )
            )
    title = f"Round {last[0].round}, federation {', '.join(run.manifest.federation)}"
    print_table(title, ("metric", "all clients", "95% interval", "own"), rows, right=("all clients", "own"))
    recorded = sum(r.rows == "all" for r in last)
    note(f"note: {_BOTH} All {recorded} metrics: --json or metrics.parquet.")
    if costs:
        _show_costs(costs, simulated=run.simulated)
    say(f"run directory: {run.path}")


def _show_costs(costs: list[Cost], *, simulated: bool) -> None:
    lines = [
        (
            c.client,
            "yes" if c.selected else "no",
            *(f"{v:.3f}" for v in (c.release, c.training, c.joint)),
            f"{c.delta:g}",
        )
        for c in sorted(costs, key=lambda c: not c.selected)
    ]
    columns = ("client", "selected", "ε release", "ε training", "ε joint", "δ")
    title = f"Privacy spent ({SIMULATED})" if simulated else "Privacy spent"
    print_table(title, columns, lines, right=columns[2:])


def _plain(record: Record | Cost, fields: tuple[str, ...]) -> dict[str, Any]:
    """JSON has no NaN and no infinity: null and "inf"."""

    def number(value: Any) -> Any:
        if isinstance(value, float) and value != value:
            return None
        return "inf" if value == float("inf") else value

    return {name: number(getattr(record, name)) for name in fields}
