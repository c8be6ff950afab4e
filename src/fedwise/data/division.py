"""Division: one file of many clients, divided by a column."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from ..errors import DataError, nearest
from ..files import shorten
from ..schema.frame import Format, column_names, read

#: More clients than this are no clients but persons.
MAX_CLIENTS = 10_000


def divide(path: str | Path, by: str) -> dict[str, pl.DataFrame]:
    """Rows of each client of a file, by the text in its column `by`, clients in order of their names.

    Cells of a text file stay text, so that a schema reads them as it would read the file; rows without a value in
    the column belong to nobody.

    Raises
    ------
    DataError
        There is no such column, or its values are no names of clients.
    """
    path = Path(path)
    there = column_names(path, [by])
    if by not in there:
        raise DataError(f"column '{by}' is missing from '{path}'{nearest(by, there)}")
    form = Format.of(path)
    rows = read(path, text=there if form is None or form.kind == "CSV" else ())
    if form is None or form.kind == "CSV":
        rows = rows.with_columns(pl.col(pl.String).str.strip_chars().replace("", None))
    names = rows.get_column(by).cast(pl.String).str.strip_chars()
    rows = rows.with_columns(names.alias(by)).filter(names.is_not_null() & (names != ""))
    if rows.get_column(by).n_unique() > MAX_CLIENTS:
        raise DataError(
            f"column '{by}' must divide '{path}' into at most {MAX_CLIENTS} clients; name another column"
        )
    for name in rows.get_column(by).unique():
        if "/" in name or "\\" in name or name.startswith(".") or not name.isprintable() or len(name) > 100:
            raise DataError(
                f"column '{by}' must hold names that can be file names, got '{shorten(name[:40])}'; use another column"
            )
    return {str(key[0]): group for key, group in sorted(rows.partition_by(by, as_dict=True).items())}
