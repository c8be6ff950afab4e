"""``fedwise features``: images, texts and signals as discrete columns by a public codebook."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .console import ForceOption, JsonOption, SeedOption, check_output, note, print_json, say

if TYPE_CHECKING:
    import polars as pl

app = typer.Typer(no_args_is_help=True, help="Make discrete columns from images, texts and signals.")

RecordsArgument = Annotated[
    Path,
    typer.Argument(help="A .npy or .npz array with a record in each line, or a table with a text column."),
]
ExtractorOption = Annotated[
    str | None,
    typer.Option("--extractor", help="What turns a batch of records into numbers, as package.module:name."),
]
ColumnOption = Annotated[
    str | None, typer.Option("--column", help="Of a table: the column that holds the text.")
]


@app.command()
def fit(
    records: RecordsArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="The codebook, a .safetensors file.")],
    public: Annotated[
        str,
        typer.Option("--public", help="Which public records these are, in words. Never fit on private rows."),
    ] = "",
    extractor: ExtractorOption = None,
    column: ColumnOption = None,
    kind: Annotated[
        str, typer.Option("--kind", help="pca (components in bins) or kmeans (one code).")
    ] = "pca",
    components: Annotated[int, typer.Option("--components", help="Columns of pca.")] = 4,
    bins: Annotated[int, typer.Option("--bins", help="Levels of each column of pca.")] = 4,
    codes: Annotated[int, typer.Option("--codes", help="Levels of kmeans.")] = 16,
    seed: SeedOption = 0,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Fit a codebook on public records; every client makes its features with it.

    Example: fedwise features fit public.npy --public "MNIST test images" -o codebook.safetensors
    """
    from ..features import fit as make
    from ..features.fitting import refuse_private

    check_output(output, ".safetensors", force=force)
    refuse_private(records)
    made = make(
        _read(records, column)[0], _import(extractor), public=public, kind=kind,  # type: ignore[arg-type]
        components=components, bins=bins, codes=codes, seed=seed,
    )  # fmt: skip
    made.save(output, force=force)
    if json:
        columns = {one.name: one.size for one in made.columns}
        print_json(
            {"codebook": str(output), "digest": made.digest, "columns": columns, "source": made.source}
        )
        return
    say(str(made))
    note(f'next: put codebook = "{made.digest}" and these columns into the schema')
    typer.echo(_toml(made.columns))


@app.command()
def apply(
    records: RecordsArgument,
    codebook: Annotated[Path, typer.Option("--codebook", help="The coordinator's codebook.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="A .parquet or .csv table of features.")],
    plan: Annotated[
        Path | None, typer.Option("--plan", help="Check that the codebook is the one this plan asks for.")
    ] = None,
    extractor: ExtractorOption = None,
    column: ColumnOption = None,
    quality: Annotated[
        bool,
        typer.Option(
            "--quality/--no-quality", help="Add size, brightness, contrast, sharpness; length, language."
        ),
    ] = True,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Turn a client's own records into the columns that a plan counts. Nothing leaves this machine.

    Example: fedwise features apply scans.npz --codebook codebook.safetensors -o features.parquet

    Further arrays of a .npz file, and further columns of a table, such as the label, are kept beside the features.
    """

    from ..features import Codebook, describe_images, describe_texts
    from ..files import write_table
    from ..planning import Plan

    check_output(output, ".parquet", ".csv", force=force)
    asked = Plan.load(plan).schema.codebook if plan is not None else None
    book = Codebook.load(codebook, digest=asked or None)
    found, beside = _read(records, column)
    table = book.apply(found, _import(extractor))
    if quality and not isinstance(found, list) and found.ndim >= 3:
        table = table.hstack(describe_images(found))
    elif quality and isinstance(found, list):
        table = table.hstack(describe_texts(found))
    table = table.hstack(beside.drop([name for name in beside.columns if name in table.columns]))
    write_table(output, table, force=force)
    if json:
        print_json({"output": str(output), "codebook": book.digest, "columns": table.columns})
    else:
        say(f"features of codebook {book.digest[:12]} in {output}: {', '.join(table.columns)}")


def _read(path: Path, column: str | None) -> tuple[Any, pl.DataFrame]:
    """Records, and what lies beside them."""
    import numpy as np
    import polars as pl

    from ..errors import DataError
    from ..schema.frame import read

    if not path.exists():
        raise DataError(f"records '{path}' do not exist; check the path")
    if path.suffix.lower() not in (".npy", ".npz"):
        if column is None:
            raise DataError("a table of texts needs --column: the column that holds the text")
        table = read(path, None)
        if column not in table.columns:
            raise DataError(f"column '{column}' is missing from '{path}'; name one of its columns")
        return table.get_column(column).cast(pl.String).fill_null("").to_list(), table.drop(column)
    try:
        loaded = np.load(path, allow_pickle=False)
        arrays = (
            {"records": loaded} if path.suffix.lower() == ".npy" else {name: loaded[name] for name in loaded}
        )
    except (OSError, ValueError):
        raise DataError(f"records '{path}' must be a plain NumPy file; save them with numpy.savez") from None
    first = "records" if "records" in arrays else next(iter(arrays))
    beside = {n: a for n, a in arrays.items() if n != first and a.ndim == 1 and len(a) == len(arrays[first])}
    return arrays[first], pl.DataFrame(beside)


def _import(name: str | None) -> Any:
    """The object called ``package.module:name`` that the user's own code has."""
    import importlib
    import os
    import sys

    from ..errors import FedwiseError

    if name is None:
        return None
    module, colon, attribute = name.partition(":")
    if not colon:
        raise FedwiseError(f"--extractor must be written package.module:name, got '{name}'")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as cause:
        raise FedwiseError(f"--extractor '{name}' cannot be imported ({cause}); check the name") from None


def _toml(columns: tuple[Any, ...]) -> str:
    lines = []
    for column in columns:
        lines += [f"[columns.{column.name}]", 'role = "feature"', f"levels = {list(column.levels)}", ""]
    return "\n".join(lines)
