"""fedwise compare: strategies, samplers and federations side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .console import ForceOption, JsonOption, SeedOption, check_output, note, print_json, print_table
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
    SplitSeedOption,
    SyntheticOption,
    TaskOption,
    TestOption,
    bar,
    find_schema,
    name_source,
    names,
)

if TYPE_CHECKING:
    import polars as pl

    from ..objective.metric import Metric


def compare(
    output: Annotated[Path, typer.Option("--output", "-o", help="Tidy table: a .parquet or .csv file.")],
    data: DataOption = None,
    by: DivideOption = None,
    synthetic: SyntheticOption = None,
    schema: SchemaOption = None,
    task: TaskOption = None,
    federation: Annotated[
        list[str] | None, typer.Option("--federation", "-f", help="A federation, NAME=CA,NY,… Repeatable.")
    ] = None,
    selection: Annotated[
        list[Path] | None,
        typer.Option("--selection", help="A selection file; named after the file. Repeatable."),
    ] = None,
    random: Annotated[int, typer.Option("--random", help="Add this many random federations of size k.")] = 0,
    k: Annotated[int, typer.Option("-k", "--size", help="Size of random federations.")] = 5,
    strategies: Annotated[
        str, typer.Option("--strategies", help="Names with commas, or all.")
    ] = "fedavg,fedprox,scaffold,fedadam",
    samplers: Annotated[str, typer.Option("--samplers", help="Names with commas, or all.")] = "full",
    seeds: Annotated[int, typer.Option("--seeds", help="Runs of each method, from --seed on.")] = 3,
    rounds: RoundsOption = 50,
    fraction: FractionOption = 0.5,
    optimizer: OptimizerOption = "adam",
    lr: LrOption = 1e-4,
    batch: BatchOption = 32,
    epochs: EpochsOption = 1,
    model: ModelOption = "mlp",
    test: TestOption = 0.2,
    split_seed: SplitSeedOption = 0,
    metric: Annotated[str | None, typer.Option(help="Metric to reach. [accuracy, or rmse]")] = None,
    metrics: Annotated[
        str,
        typer.Option("--metrics", help="Metrics of the table, with commas; eod:SEX@rate for one attribute."),
    ] = "auc,macro_f1,macro_auc,mae,balanced_accuracy,balanced_accuracy@rate,eod,eod@rate,error_gap",
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
    from ..objective.metric import parse
    from ..training.comparison import compare as run_all
    from ..training.federation import read_frames
    from ..training.settings import Training

    check_output(output, ".parquet", ".csv", force=force)
    wanted = [parse(name, what="--metrics") for name in names(metrics)]
    settings = Training(
        rounds=rounds, fraction=fraction, model=model, replicates=200 if seeds == 1 else 0, optimizer=optimizer,
        lr=lr, batch=batch, epochs=epochs, test=test, split_seed=split_seed,
    )  # fmt: skip
    _, frames = read_frames(name_source(data, synthetic, by))
    federations = _federations(federation, selection, random, k, seed, list(frames))
    known = find_schema(schema, synthetic, None, task=task)
    with bar("comparing", "accuracy") as show:
        found = run_all(
            frames, known, federations, settings, strategies=names(strategies), samplers=names(samplers),
            seeds=range(seed, seed + seeds), workers=workers, cache=cache, progress=show,
        )  # fmt: skip
    for line in found.notes:
        note(f"note: {line}")
    found.save(output, force=force)
    summary = found.summary(metric=metric, target=target)
    if json:
        print_json({"output": str(output), "runs": found.runs, "summary": summary.to_dicts()})
    else:
        _show(summary, found.attributes, metric, wanted)
        note(f"{found.table.height} lines of {found.runs} runs in {output}")


def _show(
    summary: pl.DataFrame, attributes: tuple[str, ...], metric: str | None, asked: list[Metric]
) -> None:
    from ..objective.metric import parse
    from ..training.comparison import usual_metric

    metric = metric or usual_metric(summary)
    wanted = [(metric, "")] if metric not in [m.column for m in asked] else []
    for m in asked:
        first = attributes[0] if attributes and m.compares_groups else ""
        wanted.append((m.column, m.attribute or first))
    # A comparison has the metrics of one kind of target: the others are left out.
    had = set(zip(summary.get_column("metric"), summary.get_column("attribute"), strict=True))
    wanted = [one for one in wanted if one in had] or wanted
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
    # Words, so that a heading can wrap: "EOD of SEX, rate-matched".
    names = [parse(name)._replace(attribute=attribute).label for name, attribute in wanted]
    rows = [(*key, *cells) for key, cells in lines.items()]
    columns = ("federation", "strategy", "sampler", "rounds to target", *names)
    print_table("Held-out rows of all clients", columns, rows, right=columns[3:], keys=3)


def _federations(
    given: list[str] | None, selections: list[Path] | None, random: int, k: int, seed: int, clients: list[str]
) -> dict[str, list[str]]:
    """All federations by name; everyone when none is given."""
    from ..errors import FedwiseError
    from ..training.comparison import random_federations
    from ..training.workflow import read_selection

    found: dict[str, list[str]] = {}

    def add(name: str, members: list[str]) -> None:
        if name in found:
            raise FedwiseError(f"federation '{name}' is given twice; rename one")
        found[name] = members

    for text in given or []:
        name, equals, members = text.partition("=")
        if not equals or not names(members):
            raise FedwiseError(f"federation must be written NAME=CA,NY,…, got '{text}'")
        add(name.strip(), names(members))
    for path in selections or []:
        add(path.stem, read_selection(path)[0])
    for name, drawn in random_federations(clients, random, k, seed=seed).items():
        add(name, drawn)
    return found or {"everyone": clients}
