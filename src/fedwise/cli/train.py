"""fedwise train: train the chosen federation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .console import ForceOption, JsonOption, SeedOption, print_json, print_table, progress, stderr

if TYPE_CHECKING:
    from ..planning import Plan
    from ..schema.schema import Schema
    from ..training.accounting import Cost
    from ..training.federation import Prepared
    from ..training.run import Manifest, Run
    from ..training.simulate import Config, Progress

DataOption = Annotated[
    Path | None, typer.Option("--data", help="Directory with one Parquet or CSV file for each client.")
]
SyntheticOption = Annotated[
    float | None,
    typer.Option("--synthetic", help="Use the 50 embedded synthetic states at this scale, such as 0.1."),
]
SchemaOption = Annotated[
    str | None,
    typer.Option("--schema", help="Schema file, or a shipped one such as income. [income for --synthetic]"),
]


def train(
    context: typer.Context,
    output: Annotated[Path, typer.Option("--output", "-o", help="Run directory.")],
    data: DataOption = None,
    synthetic: SyntheticOption = None,
    schema: SchemaOption = None,
    selection: Annotated[
        Path | None,
        typer.Option("--selection", help="Selection file (fedwise select --json): train its clients."),
    ] = None,
    clients: Annotated[
        str | None, typer.Option("--clients", help="Train these clients: CA,NY,… [all with data]")
    ] = None,
    pool: Annotated[
        Path | None,
        typer.Option("--pool", help="Directory of releases: select k clients from it, then train."),
    ] = None,
    k: Annotated[int, typer.Option("-k", help="Size of the federation selected from --pool.")] = 5,
    plan: Annotated[
        Path | None,
        typer.Option("--plan", help="Plan the clients answered: joint privacy of release and training."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on after the last checkpoint of the run.")
    ] = False,
    rounds: Annotated[int, typer.Option("--rounds", help="Communication rounds.")] = 50,
    strategy: Annotated[
        str, typer.Option("--strategy", help="fedavg, fedprox, scaffold, fedadam, fairfed or fedfb.")
    ] = "fedavg",
    strategy_set: Annotated[
        list[str] | None, typer.Option("--set", help="Option of the strategy, such as mu=0.1. Repeatable.")
    ] = None,
    sampler: Annotated[
        str,
        typer.Option(
            "--sampler",
            help="full, uniform, ucb_cs, threshold, fed_sampling, power_of_choice or cluster_fl.",
        ),
    ] = "full",
    sampler_set: Annotated[
        list[str] | None,
        typer.Option("--sampler-set", help="Option of the sampler, such as d=4. Repeatable."),
    ] = None,
    fraction: Annotated[float, typer.Option("--fraction", help="Share of the federation in a round.")] = 0.5,
    optimizer: Annotated[str, typer.Option("--optimizer", help="Local optimiser: adam or sgd.")] = "adam",
    lr: Annotated[float, typer.Option("--lr", help="Local learning rate.")] = 1e-4,
    batch: Annotated[int, typer.Option("--batch", help="Rows in a local step.")] = 32,
    epochs: Annotated[int, typer.Option("--epochs", help="Local passes over the rows in a round.")] = 1,
    model: Annotated[
        str, typer.Option("--model", help="mlp (32-32-32), logistic, or widths such as 64-32.")
    ] = "mlp",
    engine: Annotated[
        str, typer.Option("--engine", help="auto, fast (kernels) or torch (autograd).")
    ] = "auto",
    use_sensitive: Annotated[
        bool, typer.Option("--use-sensitive/--no-sensitive", help="Sensitive attributes as model inputs.")
    ] = True,
    test: Annotated[float, typer.Option("--test", help="Share of each client's rows held out.")] = 0.2,
    split_seed: Annotated[
        int, typer.Option("--split-seed", help="Seed of the one split of each client.")
    ] = 0,
    epsilon: Annotated[
        float | None,
        typer.Option("--epsilon", help="Train with DP-SGD under this epsilon. [no privacy in training]"),
    ] = None,
    delta: Annotated[float, typer.Option("--delta", help="Delta of DP-SGD.")] = 1e-5,
    clip: Annotated[
        float, typer.Option("--clip", help="Largest norm of one row's gradient in DP-SGD.")
    ] = 1.0,
    bootstrap: Annotated[
        int, typer.Option("--bootstrap", help="Bootstrap samples of the final intervals.")
    ] = 200,
    seed: SeedOption = 0,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Train a federation and test it on the held-out rows of all clients.

    Example: fedwise train --data clients/ --schema income --selection selection.json -o runs/best

    Writes a run directory: model.safetensors with its schema, metrics.parquet, and a checkpoint after every
    round; --resume goes on after a stop and ends with the identical result.
    """
    from ..training.federation import prepare
    from ..training.lock import alone
    from ..training.model import check_extra
    from ..training.run import Manifest, Run, fingerprint
    from ..training.samplers import make_sampler

    check_extra(private=epsilon is not None)
    asked = _read_plan(plan)
    if resume:
        Run.open(output)  # says what is wrong before a directory is made for the lock
        context.with_resource(alone(output))
        run = Run.open(output)
        manifest = run.manifest
        if asked is None and (output / "plan.json").exists():
            asked = _read_plan(output / "plan.json")
        source = str(data) if data is not None else manifest.data
        frames = read_source(source)
        prepared = prepare(
            frames,
            run.schema,
            test=manifest.test,
            seed=manifest.split_seed,
            use_sensitive=manifest.use_sensitive,
        )
        run.check_data(fingerprint(prepared, prepared.check(manifest.federation)))
    else:
        config = _config(
            rounds=rounds, strategy=strategy, strategy_options=options(strategy_set), sampler=sampler,
            sampler_options=options(sampler_set), fraction=fraction,
            settings={"optimizer": optimizer, "lr": lr, "batch": batch, "epochs": epochs}, model=model, seed=seed,
            engine=engine, replicates=bootstrap,
            privacy=None if epsilon is None else {"epsilon": epsilon, "delta": delta, "clip": clip},
        )  # fmt: skip
        source = name_source(data, synthetic)
        wanted, chosen_bytes, pooled = _federation(selection, clients, pool, k, seed)
        asked = asked or pooled
        found = find_schema(schema, synthetic, asked)
        frames = read_source(source)
        prepared = prepare(frames, found, test=test, seed=split_seed, use_sensitive=use_sensitive)
        members = prepared.check(wanted or prepared.clients)
        # Options that depend on the size of the federation fail here, before a directory is made.
        make_sampler(sampler, members, fraction=fraction, **config.sampler_options)
        manifest = Manifest(
            config=config,
            federation=members,
            clients=prepared.clients,
            schema_digest=found.digest,
            fingerprint=fingerprint(prepared, members),
            data=source,
            test=test,
            split_seed=split_seed,
            use_sensitive=use_sensitive,
        )
        beside = {} if chosen_bytes is None else {"selection.json": chosen_bytes}
        if asked is not None:
            beside["plan.json"] = asked.encode()
        context.with_resource(alone(output))
        run = Run.create(output, manifest, found, force=force, beside=beside)
    for note in prepared.notes:
        stderr().print(f"note: {note}", markup=False)
    now = _train(run, prepared, resume=resume)
    costs = _costs(manifest, now, asked)
    run.finish(now, run.model, costs)
    _show(run, now, costs, json=json)


def _train(run: Run, prepared: Prepared, *, resume: bool) -> Progress:
    from ..training.simulate import simulate

    manifest = run.manifest
    before = run.progress() if resume else None
    best = 0.0
    with progress() as bar:
        task = bar.add_task("training", total=manifest.config.rounds, best="")

        def after(now: Progress) -> None:
            nonlocal best
            run.save(now)
            accuracy = now.value("accuracy")
            best = max(best, accuracy) if accuracy == accuracy else best
            bar.update(task, completed=now.round, best=f"accuracy {accuracy:.4f}, best {best:.4f}")

        try:
            return simulate(prepared, manifest.federation, manifest.config, resume=before, on_round=after)
        except KeyboardInterrupt:
            typer.echo(f"stopped; go on with: fedwise train --resume -o {run.path}", err=True)
            raise


def _costs(manifest: Manifest, now: Progress, asked: Plan | None) -> list[Cost]:
    from ..training.accounting import compose

    privacy = manifest.config.privacy
    if privacy is None and asked is None:
        return []
    return compose(
        manifest.clients,
        mu=asked.mu if asked is not None else 0.0,
        release_epsilon=asked.epsilon if asked is not None else 0.0,
        release_delta=asked.delta if asked is not None else 0.0,
        training={} if privacy is None else {c: now.spent.get(c, ()) for c in manifest.federation},
        training_delta=privacy.delta if privacy is not None else 0.0,
        trained_openly=() if privacy is not None else manifest.federation,
    )


def _show(run: Run, now: Progress, costs: list[Cost], *, json: bool) -> None:
    last = [record for record in now.records if record.round == now.round and record.rows in ("all", "own")]
    if json:
        final = [
            {
                "rows": r.rows, "metric": r.metric, "attribute": r.attribute, "value": _number(r.value),
                "low": _number(r.low), "high": _number(r.high),
            }
            for r in last
        ]  # fmt: skip
        print_json(
            {
                "run": str(run.path),
                "federation": list(run.manifest.federation),
                "rounds": now.round,
                "metrics": final,
                "privacy": [{k: _number(getattr(c, k)) for k in c.__struct_fields__} for c in costs],
            }
        )
        return
    rows = []
    for r in last:
        if r.rows == "all" and r.value == r.value:
            own = next(o for o in last if (o.rows, o.metric, o.attribute) == ("own", r.metric, r.attribute))
            name = f"{r.metric} by {r.attribute}" if r.attribute else r.metric
            rows.append((name, f"{r.value:.4f}", f"{r.low:.4f} … {r.high:.4f}", f"{own.value:.4f}"))
    title = f"Round {now.round}, federation {', '.join(run.manifest.federation)}"
    print_table(title, ("metric", "all clients", "95% interval", "own"), rows, right=("all clients", "own"))
    if costs:
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
        print_table("Privacy spent", columns, lines, right=columns[2:])
    stderr().print(f"run directory: {run.path}", markup=False)


def _number(value: Any) -> Any:
    """JSON has no NaN and no infinity: null and "inf"."""
    if isinstance(value, float) and value != value:
        return None
    return "inf" if value == float("inf") else value


def _read_plan(path: Path | None) -> Plan | None:
    if path is None:
        return None
    from ..planning import Plan

    return Plan.load(path)


def _config(**fields: Any) -> Config:
    import msgspec

    from ..errors import FedwiseError
    from ..training.simulate import Config

    try:
        return msgspec.convert(fields, Config)
    except msgspec.ValidationError as error:
        raise FedwiseError(f"option is not valid: {str(error).replace('`', '')}") from None


def options(pairs: list[str] | None) -> dict[str, Any]:
    """``["mu=0.1"]`` as a dictionary; numbers and booleans are read as such."""
    from ..errors import FedwiseError

    out: dict[str, Any] = {}
    for pair in pairs or []:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise FedwiseError(f"option must be written name=value, got '{pair}'")
        value: Any = {"true": True, "false": False, "none": None}.get(text.lower(), text)
        if isinstance(value, str):
            for kind in (int, float):
                try:
                    value = kind(text)
                    break
                except ValueError:
                    continue
        out[key.strip()] = value
    return out


def name_source(data: Path | None, synthetic: float | None) -> str:
    """Where the data is, in words a run directory can keep."""
    from ..errors import DataError

    if (data is None) == (synthetic is None):
        raise DataError("training needs --data DIRECTORY or --synthetic SCALE, and not both")
    return str(data) if data is not None else f"synthetic:{synthetic}"


def read_source(source: str) -> dict[str, Any]:
    """Frames, or paths, of all clients."""
    if source.startswith("synthetic:"):
        from ..data.synthetic import states

        return dict(states(scale=float(source.removeprefix("synthetic:"))))
    from ..training.federation import find_frames

    return dict(find_frames(source))


def find_schema(schema: str | None, synthetic: float | None, asked: Plan | None) -> Schema:
    """The schema named, or that of the plan, or the synthetic states' own."""
    from ..errors import SchemaError
    from .plan import load_schema

    if schema is not None:
        return load_schema(schema)
    if asked is not None:
        return asked.schema
    if synthetic is not None:
        return load_schema("income")
    raise SchemaError("training needs --schema: a schema file or a shipped one such as income")


def read_selection(path: Path) -> tuple[list[str], bytes]:
    """The clients of a selection file, and the file itself."""
    import msgspec

    from ..errors import FedwiseError
    from ..files import read_bytes

    data = read_bytes(path, what="selection file", error=FedwiseError)
    try:
        found = msgspec.json.decode(data, type=dict[str, Any])
        return msgspec.convert(found["clients"], list[str]), data
    except (msgspec.DecodeError, msgspec.ValidationError, KeyError):
        raise FedwiseError(
            f"selection file '{path}' must hold a JSON object with a list of clients"
        ) from None


def _federation(
    selection: Path | None, clients: str | None, pool: Path | None, k: int, seed: int
) -> tuple[list[str], bytes | None, Plan | None]:
    """Members (empty: everyone), the selection to keep beside the run, and the plan of a pool."""
    from ..errors import FedwiseError

    if sum(option is not None for option in (selection, clients, pool)) > 1:
        raise FedwiseError(
            "federation must come from one of --selection, --clients and --pool; drop the others"
        )
    if selection is not None:
        members, data = read_selection(selection)
        if not members:
            raise FedwiseError(f"selection file '{selection}' must name at least one client")
        return members, data, None
    if clients is not None:
        members = [name.strip() for name in clients.split(",") if name.strip()]
        if not members:
            raise FedwiseError("--clients must name at least one client, such as CA,NY")
        return members, None, None
    if pool is not None:
        import msgspec

        from ..pool.pool import Pool
        from ..search import select

        loaded = Pool.load(pool)
        chosen = select(loaded, k, seed=seed)
        members = list(chosen.clients)
        note = msgspec.json.encode({"clients": members, "k": k, "loss": float(chosen.loss), "seed": seed})
        return members, note, loaded.plan
    return [], None, None
