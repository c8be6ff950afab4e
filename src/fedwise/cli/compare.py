"""fedwise compare: strategies, samplers and federations side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .console import ForceOption, JsonOption, SeedOption, print_json, print_table, progress, stderr
from .train import DataOption, SchemaOption, SyntheticOption

if TYPE_CHECKING:
    import polars as pl

    from ..training.compare import Job


def compare(
    output: Annotated[Path, typer.Option("--output", "-o", help="Tidy table: a .parquet or .csv file.")],
    data: DataOption = None,
    synthetic: SyntheticOption = None,
    schema: SchemaOption = None,
    federation: Annotated[
        list[str] | None, typer.Option("--federation", "-f", help="A federation, NAME=CA,NY,… Repeatable.")
    ] = None,
    selection: Annotated[
        list[Path] | None,
        typer.Option("--selection", help="A selection file; named after the file. Repeatable."),
    ] = None,
    random: Annotated[int, typer.Option("--random", help="Add this many random federations of size k.")] = 0,
    k: Annotated[int, typer.Option("-k", help="Size of random federations.")] = 5,
    strategies: Annotated[
        str, typer.Option("--strategies", help="Names with commas, or all.")
    ] = "fedavg,fedprox,scaffold,fedadam",
    samplers: Annotated[str, typer.Option("--samplers", help="Names with commas, or all.")] = "full",
    seeds: Annotated[int, typer.Option("--seeds", help="Runs of each method, from --seed on.")] = 3,
    rounds: Annotated[int, typer.Option("--rounds", help="Communication rounds.")] = 50,
    fraction: Annotated[float, typer.Option("--fraction", help="Share of the federation in a round.")] = 0.5,
    optimizer: Annotated[str, typer.Option("--optimizer", help="Local optimiser: adam or sgd.")] = "adam",
    lr: Annotated[float, typer.Option("--lr", help="Local learning rate.")] = 1e-4,
    batch: Annotated[int, typer.Option("--batch", help="Rows in a local step.")] = 32,
    epochs: Annotated[int, typer.Option("--epochs", help="Local passes over the rows in a round.")] = 1,
    model: Annotated[
        str, typer.Option("--model", help="mlp (32-32-32), logistic, or widths such as 64-32.")
    ] = "mlp",
    test: Annotated[float, typer.Option("--test", help="Share of each client's rows held out.")] = 0.2,
    split_seed: Annotated[
        int, typer.Option("--split-seed", help="Seed of the one split of each client.")
    ] = 0,
    metric: Annotated[str, typer.Option("--metric", help="Metric of the target.")] = "accuracy",
    target: Annotated[
        float | None, typer.Option("--target", help="Value to reach. [98% of the way to the best method]")
    ] = None,
    workers: Annotated[int, typer.Option("--workers", help="Processes.")] = 2,
    cache: Annotated[
        Path | None,
        typer.Option("--cache", help="Keep finished trainings here; a stopped comparison goes on from them."),
    ] = None,
    seed: SeedOption = 0,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Compare strategies, samplers and federations on the same held-out rows of all clients.

    Example: fedwise compare --synthetic 0.1 --random 2 -k 5 --strategies all --samplers all --rounds 5
    --seeds 1 -o comparison.parquet
    """
    import io

    from ..files import refuse_existing, write_new
    from ..training.compare import compare as run_all
    from ..training.compare import jobs, summarise
    from ..training.federation import prepare
    from ..training.samplers import SAMPLERS
    from ..training.strategies import STRATEGIES
    from .train import _config, find_schema, name_source, read_source

    refuse_existing(output, force=force)
    config = _config(
        rounds=rounds, fraction=fraction, model=model, replicates=200 if seeds == 1 else 0,
        settings={"optimizer": optimizer, "lr": lr, "batch": batch, "epochs": epochs},
    )  # fmt: skip
    frames = read_source(name_source(data, synthetic))
    federations = _federations(federation, selection, random, k, seed, list(frames))
    work = jobs(
        federations,
        strategies=list(STRATEGIES) if strategies == "all" else _names(strategies),
        samplers=list(SAMPLERS) if samplers == "all" else _names(samplers),
        seeds=range(seed, seed + seeds),
        config=config,
    )
    prepared = prepare(frames, find_schema(schema, synthetic, None), test=test, seed=split_seed)
    for note in prepared.notes:
        stderr().print(f"note: {note}", markup=False)
    best = ("", 0.0)
    with progress() as bar:
        task = bar.add_task("comparing", total=len(work), best="")

        def after(job: Job, table: pl.DataFrame) -> None:
            nonlocal best
            rows = table.filter(rows="all", metric="accuracy").sort("round")
            reached = float(rows.get_column("value")[-1])
            if reached > best[1]:
                best = (f"{job.config.strategy}/{job.config.sampler} on {job.federation}", reached)
            bar.update(task, advance=1, best=f"best accuracy {best[1]:.4f} ({best[0]})")

        table = run_all(prepared, work, workers=workers, cache=cache, on_done=after)
    buffer = io.BytesIO()
    if output.suffix.lower() == ".csv":
        table.write_csv(buffer)
    else:
        table.write_parquet(buffer)
    write_new(output, buffer.getvalue(), force=force)
    summary = summarise(table, metric=metric, target=target)
    if json:
        print_json({"output": str(output), "runs": len(work), "summary": summary.to_dicts()})
    else:
        _show(summary, prepared.encoder.attributes, metric)
        stderr().print(f"{table.height} lines of {len(work)} runs in {output}", markup=False)


def _show(summary: pl.DataFrame, attributes: tuple[str, ...], metric: str) -> None:
    wanted = [
        (metric, ""),
        ("f1", ""),
        *((name, a) for a in attributes[:1] for name in ("eod", "spd", "mad")),
    ]
    lines: dict[tuple[str, ...], list[str]] = {}
    for row in summary.iter_rows(named=True):
        key = (row["federation"], row["strategy"], row["sampler"])
        if key not in lines:
            to = row["rounds_to_target"]
            lines[key] = ["-" if to is None else f"{to:g}", *["-"] * len(wanted)]
        if (row["metric"], row["attribute"]) in wanted:
            reach = (row["high"] - row["low"]) / 2
            shown = f"{row['mean']:.4f}" + (f" ±{reach:.4f}" if reach == reach else "")
            lines[key][1 + wanted.index((row["metric"], row["attribute"]))] = shown
    names = [f"{name} by {attribute}" if attribute else name for name, attribute in wanted]
    rows = [(*key, *cells) for key, cells in lines.items()]
    columns = ("federation", "strategy", "sampler", "rounds to target", *names)
    print_table("Held-out rows of all clients", columns, rows, right=columns[3:])


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _federations(
    given: list[str] | None, selections: list[Path] | None, random: int, k: int, seed: int, clients: list[str]
) -> dict[str, list[str]]:
    """All federations by name; everyone when none is given."""
    import numpy as np

    from ..errors import FedwiseError
    from .train import read_selection

    found: dict[str, list[str]] = {}

    def add(name: str, members: list[str]) -> None:
        if name in found:
            raise FedwiseError(f"federation '{name}' is given twice; rename one")
        found[name] = members

    for text in given or []:
        name, equals, members = text.partition("=")
        if not equals or not _names(members):
            raise FedwiseError(f"federation must be written NAME=CA,NY,…, got '{text}'")
        add(name.strip(), _names(members))
    for path in selections or []:
        add(path.stem, read_selection(path)[0])
    if random and not 1 <= k <= len(clients):
        raise FedwiseError(f"k must be between 1 and {len(clients)}, got {k}")
    for number in range(random):
        rng = np.random.default_rng((seed, number, 0xFEDE))
        add(f"random {number + 1}", sorted(rng.choice(clients, size=k, replace=False).tolist()))
    return found or {"everyone": clients}
