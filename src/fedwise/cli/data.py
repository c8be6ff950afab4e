"""``fedwise data``: shipped schemas, census tasks divided into clients, synthetic clients."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import console

if TYPE_CHECKING:
    import polars as pl

    from ..schema.schema import Schema

app = typer.Typer(
    help="Schemas of the census tasks, real census clients, and synthetic ones.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

OutputOption = Annotated[
    Path, typer.Option("-o", "--output", help="Directory to write: a Parquet file for each client.")
]
FeaturesOption = Annotated[
    str, typer.Option("--features", help="'paper', or 'full' for folktables' own list.")
]


@app.command()
def schemas(
    name: Annotated[str | None, typer.Argument(help="A shipped schema to print as TOML, or a file.")] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the schema to this file.")
    ] = None,
    features: FeaturesOption = "paper",
    show: Annotated[bool, typer.Option("--show", help="Show every column of the schema as a table.")] = False,
    json_schema: Annotated[
        bool, typer.Option("--json-schema", help="Print the JSON Schema of schema files, for editors.")
    ] = False,
    force: console.ForceOption = False,
    json: console.JsonOption = False,
) -> None:
    """List the shipped schemas, or print one.

    Example: fedwise data schemas income -o schema.toml
    """
    import msgspec

    from .. import data
    from ..data import tasks
    from ..errors import FedwiseError
    from ..schema.schema import Schema

    if json_schema:
        _write_json_schema(output, force=force)
        return
    if name is None:
        if show:
            raise FedwiseError("--show needs the name of a schema; add one of: " + ", ".join(data.schemas()))
        if output is not None:
            raise FedwiseError("schema must be named to be written; add one of: " + ", ".join(data.schemas()))
        described = [_describe(data.schema(known)) for known in data.schemas()]
        if json:
            console.print_json({"schemas": described})
            return
        rows = [[d["name"], d["target"], d["variables"], d["tables"], d["cells"]] for d in described]
        columns = ["name", "target", "variables", "pairs", "cells"]
        console.print_table("Shipped schemas", columns, rows, right=columns[2:])
        console.note("Print one: fedwise data schemas income")
        return
    shipped = Schema.load(name)
    if show:
        _show_columns(shipped)
        return
    if features == "paper":
        text = data.schema_text(name) if name in data.schemas() else shipped.to_toml()
    else:
        shipped = tasks.find(name).schema(features)  # type: ignore[arg-type]
        text = shipped.to_toml()
    if output is not None:
        if output.exists() and not force:
            raise FedwiseError(f"output '{output}' exists; choose another name or pass --force")
        _write_text(output, text)
        if json:
            console.print_json({"schema": name, "output": str(output)})
        else:
            console.note(f"Wrote {output}")
    elif json:
        console.print_json(msgspec.to_builtins(shipped))
    else:
        typer.echo(text, nl=False)


@app.command()
def acs(
    task: Annotated[
        str, typer.Option("--task", help="income, employment, public_coverage, travel_time or mobility.")
    ],
    source: Annotated[Path, typer.Option("--source", help="CSV or Parquet file, or folktables directory.")],
    output: OutputOption,
    by: Annotated[str, typer.Option("--by", help="Client column: ST, PUMA, or any other.")] = "ST",
    features: FeaturesOption = "paper",
    year: Annotated[int | None, typer.Option("--year", help="Survey year; needed for a directory.")] = None,
    horizon: Annotated[str, typer.Option("--horizon", help="'1-Year' or '5-Year'.")] = "1-Year",
    threshold: Annotated[
        int | None,
        typer.Option("--threshold", help="Of the target: dollars (income), minutes (travel_time)."),
    ] = None,
    states: Annotated[str | None, typer.Option("--states", help="Only these, such as CA,NY.")] = None,
    download: Annotated[bool, typer.Option("--download", help="Let folktables fetch missing files.")] = False,
    force: console.ForceOption = False,
    json: console.JsonOption = False,
) -> None:
    """Divide census records into clients of a task: one Parquet file each, and the schema that fits them.

    Example: fedwise data acs --task income --source acs2018_income.parquet -o clients/
    """
    from ..data import acs as loader

    _check_folder(output, force)
    loaded = loader.read(
        task,
        source,
        by=by,
        features=features,  # type: ignore[arg-type]
        threshold=threshold,
        year=year,
        horizon=horizon,
        only=_names(states),
        download=download,
    )
    left = _write_clients(output, loaded.clients, loaded.schema, {})
    notes = [*loaded.notes, *left]
    counts = {name: rows.height for name, rows in loaded.clients.items()}
    if json:
        about: dict[str, Any] = {
            "task": loaded.task.name,
            "target": loaded.task.target,
            "label": loaded.task.label,
        }
        about |= {"by": by, "clients": len(counts), "total_rows": sum(counts.values()), "rows": counts}
        about |= {"variables": loaded.schema.names, "notes": notes, "synthetic": False, "output": str(output)}
        console.print_json(about)
        return
    _summarise(f"ACS {loaded.task.name}: {loaded.task.target}", counts, output)
    for note in notes:
        console.note(f"note: {note}")


@app.command()
def synthetic(
    output: OutputOption,
    states: Annotated[str | None, typer.Option("--states", help="Only these, such as CA,NY.")] = None,
    scale: Annotated[float, typer.Option("--scale", help="Factor on the natural sizes.")] = 1.0,
    seed: console.SeedOption = 0,
    force: console.ForceOption = False,
    json: console.JsonOption = False,
) -> None:
    """Write SYNTHETIC clients: 50 artificial states that resemble ACSIncome 2018. No row is a person.

    Example: fedwise data synthetic -o clients/ --states CA,NY --scale 0.1
    """
    from ..data import synthetic as generator

    _check_folder(output, force)
    clients = generator.states(seed=seed, scale=scale, names=_names(states))
    left = _write_clients(output, clients, generator.schema(), generator.METADATA)
    _write_text(output / "SYNTHETIC.txt", generator.NOTICE + ".\n")
    counts = {name: rows.height for name, rows in clients.items()}
    if json:
        about: dict[str, Any] = {"synthetic": True, "notice": generator.NOTICE, "seed": seed, "scale": scale}
        about |= {"clients": len(counts), "total_rows": sum(counts.values()), "rows": counts}
        console.print_json(about | {"notes": left, "output": str(output)})
        return
    _summarise("SYNTHETIC states", counts, output)
    for note in [generator.NOTICE, *left]:
        console.note(f"note: {note}")


def _write_json_schema(output: Path | None, *, force: bool) -> None:
    import json

    from ..files import write_new
    from ..schema.editor import json_schema

    text = json.dumps(json_schema(), indent=2) + "\n"
    if output is None:
        typer.echo(text, nl=False)
        return
    console.check_output(output, ".json", force=force)
    write_new(output, text.encode(), force=force)
    console.note(
        f"written to {output}; in a schema file, editors find it by the first line: #:schema {output}"
    )


def _show_columns(schema: Schema) -> None:
    rows = []
    for column in schema.columns:
        if column.rule is not None:
            domain = column.rule
        else:
            domain = ", ".join(column.labels)
        kept = f"missing {column.missing}, unknown {column.unknown}"
        rows.append((column.name, str(column.role), column.size, ", ".join(column.sources), domain, kept))
    columns = ("column", "role", "levels", "in the data", "domain", "what does not fit")
    console.print_table(f"schema '{schema.name}'", columns, rows, right=("levels",))
    for rule in schema.where:
        console.say(f"rows counted: {rule}")


def _describe(schema: Schema) -> dict[str, Any]:
    sizes = schema.sizes
    pairs = [(x, y) for x in range(len(sizes)) for y in range(x + 1, len(sizes))]
    return {
        "name": schema.name,
        "target": schema.columns[schema.target].name,
        "sensitive": [schema.columns[i].name for i in schema.sensitive],
        "features": [schema.columns[i].name for i in schema.features],
        "variables": len(sizes),
        "tables": len(pairs),
        "cells": sum(sizes[x] * sizes[y] for x, y in pairs),
        "digest": schema.digest,
    }


def _names(text: str | None) -> list[str] | None:
    if text is None:
        return None
    from ..errors import FedwiseError

    names = [word.strip() for word in text.split(",") if word.strip()]
    if not names:
        raise FedwiseError("states must name at least one state, such as CA,NY")
    return names


def _check_folder(folder: Path, force: bool) -> None:
    from ..errors import FedwiseError

    if folder.is_file():
        raise FedwiseError(f"output '{folder}' is a file; name a directory")
    if folder.is_dir() and any(folder.iterdir()) and not force:
        raise FedwiseError(
            f"output '{folder}' exists and is not empty; choose another directory or pass --force"
        )


def _write_clients(
    folder: Path, clients: dict[str, pl.DataFrame], schema: Schema, metadata: dict[str, str]
) -> list[str]:
    """Write the files; notes on Parquet files of an earlier run that stay beside them."""
    from ..errors import DataError, FedwiseError

    for name in clients:
        if not name or name.startswith(".") or any(mark in name for mark in "/\\:\0"):
            raise DataError(
                "client names must be usable as file names; the client column holds one that is not"
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with console.progress() as bar:
            task = bar.add_task("writing clients", total=len(clients), best="")
            for name, rows in clients.items():
                rows.write_parquet(folder / f"{name}.parquet", metadata=metadata or None)
                bar.advance(task)
        schema.save(folder / "schema.toml", force=True)
    except OSError as error:
        raise FedwiseError(f"output '{folder}' cannot be written ({error.strerror}); check it") from None
    stale = sorted(file.stem for file in folder.glob("*.parquet") if file.stem not in clients)
    return [f"{len(stale)} other Parquet files stay in '{folder}', such as {stale[0]}"] if stale else []


def _write_text(path: Path, text: str) -> None:
    from ..errors import FedwiseError

    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise FedwiseError(f"output '{path}' cannot be written ({error.strerror}); check it") from None


def _summarise(title: str, counts: dict[str, int], output: Path) -> None:
    sizes = sorted(counts.values())
    line = [len(sizes), f"{sum(sizes):,}", f"{sizes[0]:,}", f"{sizes[len(sizes) // 2]:,}", f"{sizes[-1]:,}"]
    columns = ["clients", "rows", "smallest", "median", "largest"]
    console.print_table(title, columns, [line], right=columns)
    console.note(f"Wrote {len(sizes)} clients and schema.toml to {output}")
