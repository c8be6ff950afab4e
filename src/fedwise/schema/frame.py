"""Frame: a client's rows, from whatever the data owner has: polars, pandas, pyarrow, CSV, Parquet."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ..errors import DataError

#: Anything `read` accepts.
FrameLike = Any

#: What reading a damaged file raises. polars panics, which is no `Exception`, on some damaged Parquet pages.
_UNREADABLE = (pl.exceptions.PolarsError, pl.exceptions.PanicException, csv.Error)


def read(frame: FrameLike, columns: Sequence[str] | None = None, *, text: Sequence[str] = ()) -> pl.DataFrame:
    """Bring rows into one polars frame, reading only `columns` where that is possible.

    Parameters
    ----------
    frame
        A polars or pandas DataFrame, a polars LazyFrame, a pyarrow Table, or the path of a CSV or
        Parquet file.
    columns
        Names to keep; names that are not present are left out (the schema reports them).
    text
        Names whose values are text even where a CSV file makes them look like numbers: ``01``.

    Raises
    ------
    DataError
        The file is missing, empty or unreadable, or two columns share a name. No message quotes data.
    """
    if isinstance(frame, str | Path):
        return _keep(_read_path(Path(frame), columns, text), columns)
    if isinstance(frame, pl.LazyFrame):
        try:
            present = frame.collect_schema().names()
            kept = present if columns is None else [c for c in columns if c in present]
            return frame.select(kept).collect()
        except (pl.exceptions.PolarsError, OSError):
            raise DataError("the lazy frame cannot be collected; check its query and files") from None
    if isinstance(frame, pl.DataFrame):
        return _keep(frame, columns)
    kind = type(frame).__module__.split(".")[0]
    if kind == "pandas" and hasattr(frame, "columns"):
        return _keep(_from_pandas(frame, columns), columns)
    if kind == "pyarrow" and hasattr(frame, "column_names"):
        _refuse_duplicates(list(frame.column_names), "the table")
        kept = frame.column_names if columns is None else [c for c in columns if c in frame.column_names]
        converted = pl.from_arrow(frame.select(kept))
        assert isinstance(converted, pl.DataFrame)
        return converted
    raise DataError(
        f"data must be a polars or pandas DataFrame, a pyarrow Table or a path, got {type(frame).__name__}"
    )


def column_types(path: Path) -> dict[str, pl.DataType]:
    """Names and types of a file's columns, for drafting a schema; a CSV file's are told from its first rows."""
    try:
        if not path.exists():
            raise DataError(f"data file '{path}' does not exist; check the path")
        if _is_csv(path):
            _refuse_duplicates(_csv_header(path), f"'{path}'")
            return dict(pl.scan_csv(path, infer_schema_length=10_000).collect_schema())
        return dict(pl.scan_parquet(path).collect_schema())
    except (*_UNREADABLE, OSError, UnicodeDecodeError):
        raise DataError(f"data file '{path}' cannot be read as {_kind(path)}; check the file") from None


def _keep(frame: pl.DataFrame, columns: Sequence[str] | None) -> pl.DataFrame:
    if columns is None:
        return frame
    # Picking columns by index costs microseconds; `select` starts a query, which costs milliseconds.
    return frame[[c for c in columns if c in frame.columns]]


def _read_path(path: Path, columns: Sequence[str] | None, text: Sequence[str]) -> pl.DataFrame:
    try:
        if not path.exists():
            raise DataError(f"data file '{path}' does not exist; check the path")
        if path.is_dir():
            raise DataError(f"data '{path}' is a directory; name one CSV or Parquet file")
        if path.stat().st_size == 0:
            raise DataError(f"data file '{path}' is empty; it needs at least a header line")
        if _is_csv(path):
            header = _csv_header(path)
            _refuse_duplicates(header, f"'{path}'")
            kept = None if columns is None else [c for c in columns if c in header]
            as_text = {c: pl.String for c in text if c in header}
            return pl.read_csv(path, columns=kept, schema_overrides=as_text, infer_schema_length=None)
        present = pl.read_parquet_schema(path)
        return pl.read_parquet(
            path, columns=None if columns is None else [c for c in columns if c in present]
        )
    except _UNREADABLE:
        # polars quotes the offending cell in its message: private data, so the cause is dropped.
        raise DataError(f"data file '{path}' cannot be read as {_kind(path)}; check the file") from None
    except OSError as error:
        raise DataError(f"data file '{path}' cannot be read ({error.strerror}); check the path") from None
    except UnicodeDecodeError:
        raise DataError(f"data file '{path}' is not UTF-8 text; convert it first") from None


def _from_pandas(frame: Any, columns: Sequence[str] | None) -> pl.DataFrame:
    names = [str(c) for c in frame.columns]
    _refuse_duplicates(names, "the table")
    kept = [c for c in frame.columns if columns is None or str(c) in columns]
    return pl.DataFrame([_series_from_pandas(str(c), frame[c]) for c in kept])


def _series_from_pandas(name: str, column: Any) -> pl.Series:
    # Without pyarrow: numbers go through numpy, everything else (nullable numbers too) value by value.
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "iufb":
        return pl.Series(name, column.to_numpy(), nan_to_null=True)
    missing = column.isna().to_numpy()
    values = [None if gone else value for value, gone in zip(column.tolist(), missing, strict=True)]
    if {type(value) for value in values} - {type(None)} == {int, float}:
        values = [None if value is None else float(value) for value in values]
    try:
        return pl.Series(name, values)
    except (TypeError, pl.exceptions.PolarsError):
        raise DataError(f"column '{name}' mixes types; convert it to one type") from None


def _is_csv(path: Path) -> bool:
    return path.suffix.lower() in {".csv", ".txt"}


def _kind(path: Path) -> str:
    return "CSV" if _is_csv(path) else "Parquet"


def _csv_header(path: Path) -> list[str]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        return next(csv.reader(file), [])


def _refuse_duplicates(names: list[str], where: str) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"column '{twice[0]}' appears twice in {where}; rename or drop one")
