"""Frame: a client's rows, from whatever the data owner has: polars, pandas, pyarrow, text files, Parquet.

`Schema.read` is the way to the rows of a schema: it knows which columns of a CSV file hold text. `read` alone
guesses types from the values, so ``01`` becomes the number 1.
"""

from __future__ import annotations

import lzma
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from ..deferred import Deferred
from ..errors import DataError
from .textfile import COMPRESSED, SEPARATORS, read_head, read_names, read_text, refuse_duplicates

if TYPE_CHECKING:
    import polars as pl
else:
    pl = Deferred("polars")

#: Anything `read` accepts.
FrameLike = Any

_PARQUET = (".parquet", ".pq")
_ENDINGS = ".parquet, .csv or .tsv, the last two also with .gz, .zst, .bz2, .xz or .zip"


class Format(NamedTuple):
    """What a file's name says about it: CSV (with TSV) or Parquet, and the name without its endings."""

    kind: Literal["CSV", "Parquet"]
    name: str
    separator: str = ","

    @classmethod
    def of(cls, path: Path) -> Format | None:
        """By the end of the name alone, whatever its case; None where it says nothing."""
        stem, suffix = path.stem, path.suffix.lower()
        if suffix in _PARQUET:
            return cls("Parquet", stem)
        if suffix in COMPRESSED:
            packed = suffix
            stem, suffix = Path(stem).stem, Path(stem).suffix.lower()
            if packed == ".zip" and suffix not in SEPARATORS:
                return cls("CSV", path.stem)
        return cls("CSV", stem, SEPARATORS[suffix]) if suffix in SEPARATORS else None


def read(frame: FrameLike, columns: Sequence[str] | None = None, *, text: Sequence[str] = ()) -> pl.DataFrame:
    """Bring rows into one polars frame, reading only `columns` where that is possible.

    Parameters
    ----------
    frame
        A polars or pandas DataFrame, a polars LazyFrame, a pyarrow Table, or the path of a Parquet, CSV or TSV
        file. Text files may be compressed, and their separator and encoding are told from the file.
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
        refuse_duplicates(list(frame.column_names), "the table")
        kept = frame.column_names if columns is None else [c for c in columns if c in frame.column_names]
        converted = pl.from_arrow(frame.select(kept))
        assert isinstance(converted, pl.DataFrame)
        return converted
    raise DataError(
        f"data must be a polars or pandas DataFrame, a pyarrow Table or a path, got {type(frame).__name__}"
    )


def column_types(path: Path) -> dict[str, pl.DataType]:
    """Names and types of a file's columns, for drafting a schema; a CSV file's are told from its first rows."""
    form = _check(path)
    try:
        if form.kind == "Parquet":
            return dict(pl.scan_parquet(path).collect_schema())
        return dict(read_head(path, form.separator, 10_000).schema)
    except _damages() as cause:
        raise _unreadable(path, form, cause) from None


def column_names(frame: FrameLike, wanted: Sequence[str] = ()) -> list[str]:
    """Names of all columns there are; `wanted` ones help to tell what separates the cells of a text file."""
    if not isinstance(frame, str | Path):
        if isinstance(frame, pl.LazyFrame):
            return frame.collect_schema().names()
        return [str(name) for name in getattr(frame, "column_names", getattr(frame, "columns", ()))]
    path = Path(frame)
    form = _check(path)
    try:
        if form.kind == "Parquet":
            return list(pl.read_parquet_schema(path))
        return read_names(path, form.separator, wanted)
    except _damages() as cause:
        raise _unreadable(path, form, cause) from None


def _damages() -> tuple[type[BaseException], ...]:
    """What reading a damaged file raises. polars panics, which is no `Exception`, on some damaged Parquet pages."""
    polars = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
    return (*polars, EOFError, lzma.LZMAError, zlib.error, zipfile.BadZipFile, UnicodeError, OSError)


def _keep(frame: pl.DataFrame, columns: Sequence[str] | None) -> pl.DataFrame:
    if columns is None:
        return frame
    # Picking columns by index costs microseconds; `select` starts a query, which costs milliseconds.
    return frame[[c for c in columns if c in frame.columns]]


def _read_path(path: Path, columns: Sequence[str] | None, text: Sequence[str]) -> pl.DataFrame:
    form = _check(path)
    try:
        if form.kind == "Parquet":
            present = pl.read_parquet_schema(path)
            return pl.read_parquet(
                path, columns=None if columns is None else [c for c in columns if c in present]
            )
        return read_text(path, form.separator, columns, text)
    except _damages() as cause:
        raise _unreadable(path, form, cause) from None


def _check(path: Path) -> Format:
    """The format of a file that exists and is not empty."""
    try:
        if not path.exists():
            raise DataError(f"data file '{path}' does not exist; check the path")
        if path.is_dir():
            raise DataError(f"data '{path}' is a directory; name one CSV or Parquet file")
        if path.stat().st_size == 0:
            raise DataError(f"data file '{path}' is empty; it needs at least a header line")
        form = Format.of(path)
        if form is None:
            with path.open("rb") as file:
                if file.read(4) != b"PAR1":
                    raise DataError(f"data file '{path}' must end in {_ENDINGS}; rename or convert it")
            form = Format("Parquet", path.stem)
        return form
    except OSError as cause:
        raise DataError(f"data file '{path}' cannot be read ({cause.strerror}); check the path") from None


def _unreadable(path: Path, form: Format, cause: BaseException) -> DataError:
    # polars quotes the offending cell in its message: private data, so nothing of it is passed on.
    if isinstance(cause, pl.exceptions.NoDataError):
        return DataError(f"data file '{path}' is empty; it needs at least a header line")
    if isinstance(cause, OSError) and cause.strerror:
        return DataError(f"data file '{path}' cannot be read ({cause.strerror}); check the path")
    return DataError(f"data file '{path}' cannot be read as {form.kind}; check the file")


def _from_pandas(frame: Any, columns: Sequence[str] | None) -> pl.DataFrame:
    names = [str(c) for c in frame.columns]
    refuse_duplicates(names, "the table")
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
