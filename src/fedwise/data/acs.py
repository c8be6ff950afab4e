"""ACS: client frames of the census tasks, from PUMS files wherever they are.

Sources
- a directory in folktables' layout, ``<root>/<year>/<horizon>/psam_p06.csv`` (``ss14pca.csv`` before 2017);
- the same, downloaded by folktables first (``download=True``; needs the extra ``acs`` and a network);
- any CSV or Parquet file, or frame, with PUMS columns and a client column.

Names and codes differ over the years. `read` gives the older ones: RELSHIPP becomes RELP and JWTRNS
becomes JWTR, recoded (`pums.RECODES`); STATE becomes ST; FIPS codes become USPS codes. Extracts that hold the
label instead of its source column, or were filtered already, are taken as they are.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from ..errors import DataError, MissingExtra, nearest
from ..schema import frame as frames
from ..schema.frame import FrameLike
from ..schema.rule import Rule
from ..schema.schema import Schema
from . import pums, states
from .tasks import TASKS, Features, Task, find

__all__ = ["TASKS", "Loaded", "Task", "find", "load", "read"]

_STATE_NAMES = ("ST", "STATE")
_CLIENT = "__client"
#: Columns that hold numbers, also where a file has them as text.
_NUMBERS = frozenset({*pums.names(), *pums.RENAMED, "PUBCOV", *(task.label for task in TASKS.values())})


@dataclass(frozen=True)
class Loaded:
    """Client frames with the task and schema that fit them, and notes on what was replaced or left out."""

    clients: dict[str, pl.DataFrame]
    task: Task
    schema: Schema
    notes: tuple[str, ...]


def load(
    task: str | Task,
    source: FrameLike,
    *,
    by: str = "ST",
    features: Features = "paper",
    threshold: int | None = None,
    year: int | None = None,
    horizon: str = "1-Year",
    only: Sequence[str] | None = None,
    download: bool = False,
) -> dict[str, pl.DataFrame]:
    """Client frames of a census task: what `read` gives, without task, schema and notes."""
    return read(
        task,
        source,
        by=by,
        features=features,
        threshold=threshold,
        year=year,
        horizon=horizon,
        only=only,
        download=download,
    ).clients


def read(
    task: str | Task,
    source: FrameLike,
    *,
    by: str = "ST",
    features: Features = "paper",
    threshold: int | None = None,
    year: int | None = None,
    horizon: str = "1-Year",
    only: Sequence[str] | None = None,
    download: bool = False,
) -> Loaded:
    """Read a census task and divide it into clients.

    Parameters
    ----------
    task
        ``income``, ``employment``, ``public_coverage``, ``travel_time``, ``mobility``, or a `Task`.
    source
        A file, frame, or directory in folktables' layout.
    by
        The client column: ``ST`` (clients ``CA``), ``PUMA`` (clients ``CA-03701``) or any other column.
    features
        ``paper`` or ``full``, see `Task.schema`.
    threshold
        Of the target, for tasks that have one. Default: the task's, or the one usual for `year`.
    year, horizon
        Survey of a folktables directory. `year` also sets the usual threshold: 70,000 dollars from 2024.
    only
        USPS codes of the states to keep.
    download
        Let folktables fetch the files that the directory lacks.

    Returns
    -------
    loaded
        Frames by client name, sorted, with exactly the columns of the schema; only rows of the task.

    Raises
    ------
    DataError
        The source cannot be read or lacks a column that nothing can stand in for.
    FedwiseError
        Unknown task, or a threshold for a task that has none.
    """
    wanted = find(task).at(threshold=threshold, year=year)
    keep = None if only is None else sorted({states.find(name).usps for name in only})
    lazy, lost = _open(source, year=year, horizon=horizon, only=keep, download=download)
    columns = lazy.collect_schema()
    client = _client(columns, by)
    prepared = _normalise(lazy, columns)
    names = prepared.collect_schema().names()
    rows = _filter(_label(prepared, wanted, names), wanted, names)
    if keep is not None:
        if "ST" not in names:
            raise DataError(
                "column 'ST' (or 'STATE') is missing from the data; it is needed to keep some states only"
            )
        rows = rows.filter(pl.col("ST").is_in(keep))
    schema = wanted.schema(features, columns=names)
    missing = [column.name for column in schema.columns if column.name not in (*names, wanted.label)]
    if missing:
        raise DataError(f"column '{missing[0]}' is missing from the data; task '{wanted.name}' needs it")
    try:
        table = rows.select(client.alias(_CLIENT), *schema.names).collect()
    except pl.exceptions.PolarsError:
        # The cause quotes cells of the data, so it is dropped.
        raise DataError(
            f"data must hold PUMS codes as numbers for task '{wanted.name}'; check its columns"
        ) from None
    if table.height == 0:
        raise DataError(f"data must hold rows of task '{wanted.name}', got none after its filter")
    if table.get_column(_CLIENT).null_count():
        raise DataError(f"client column '{by}' holds missing values; fill them or drop those rows")
    parts = table.partition_by(_CLIENT, as_dict=True, include_key=False)
    clients = {str(key[0]): part for key, part in sorted(parts.items(), key=lambda item: str(item[0][0]))}
    notes = [*wanted.notes(features, columns=names)]
    if lost:
        notes.append(f"{len(lost)} states have no file, such as {lost[0]}: left out")
    return Loaded(clients, wanted, schema, tuple(notes))


def _open(
    source: FrameLike, *, year: int | None, horizon: str, only: Sequence[str] | None, download: bool
) -> tuple[pl.LazyFrame, list[str]]:
    """The rows, not read yet, and the states for which a directory has no file."""
    if isinstance(source, str | Path):
        path = Path(source)
        if download or path.is_dir():
            return _open_folder(path, year=year, horizon=horizon, only=only, download=download)
        frames.column_types(path)  # the readable errors for a file that is missing or broken
        return (_scan_csv(path) if path.suffix.lower() in {".csv", ".txt"} else pl.scan_parquet(path)), []
    return (source if isinstance(source, pl.LazyFrame) else frames.read(source).lazy()), []


def _open_folder(
    root: Path, *, year: int | None, horizon: str, only: Sequence[str] | None, download: bool
) -> tuple[pl.LazyFrame, list[str]]:
    if year is None:
        raise DataError(f"year must be given to read '{root}' in folktables' layout; name the survey year")
    if horizon not in ("1-Year", "5-Year"):
        raise DataError(f"horizon must be '1-Year' or '5-Year', got '{horizon}'")
    folder = root / str(year) / horizon
    wanted = [states.find(name) for name in (only or states.FIFTY)]
    if download:
        _download(folder, [state.usps for state in wanted], year=year, horizon=horizon)
    found = {state.usps: folder / _file_name(state, year) for state in wanted}
    present = {usps: path for usps, path in found.items() if path.is_file()}
    lost = sorted(set(found) - set(present))
    if not present or (only is not None and lost):
        name = found[lost[0]]
        raise DataError(f"census file '{name}' does not exist; put it there, or download it with folktables")
    return pl.concat([_scan_csv(path) for path in present.values()], how="diagonal_relaxed"), lost


def _file_name(state: states.State, year: int) -> str:
    if year >= 2017:
        return f"psam_p{state.fips:02d}.csv"
    return f"ss{year % 100:02d}p{state.usps.lower()}.csv"


def _download(folder: Path, wanted: Sequence[str], *, year: int, horizon: str) -> None:
    try:
        from folktables.load_acs import initialize_and_download
    except ImportError:
        raise MissingExtra("downloading census files", "acs") from None
    folder.mkdir(parents=True, exist_ok=True)
    for usps in wanted:
        # folktables prints its progress and its failures on stdout, where only answers belong.
        try:
            with contextlib.redirect_stdout(sys.stderr):
                path = initialize_and_download(str(folder), usps, str(year), horizon, "person", download=True)
        except AssertionError:
            raise DataError(
                f"folktables cannot download {usps} {year} {horizon}; try 2014 or later"
            ) from None
        if not Path(path).is_file():
            raise DataError(f"census file of {usps} {year} could not be downloaded; check the network")


def _scan_csv(path: Path) -> pl.LazyFrame:
    # Everything as text: of the 280 columns only those a task asks for are converted, in `_normalise`.
    lazy = pl.scan_csv(path, infer_schema=False)
    return lazy.rename({name: name.strip() for name in lazy.collect_schema().names()})


def _client(columns: pl.Schema, by: str) -> pl.Expr:
    if by == "ST":
        state = next((name for name in _STATE_NAMES if name in columns), None)
        if state is None:
            raise DataError("client column 'ST' (or 'STATE') is missing from the data; name another one")
        return pl.col("ST")
    if by not in columns:
        raise DataError(f"client column '{by}' is missing from the data{nearest(by, columns.names())}")
    if by == "PUMA" and any(name in columns for name in _STATE_NAMES):
        # PUMA codes repeat from state to state.
        return pl.format("{}-{}", pl.col("ST"), pl.col("PUMA").cast(pl.String).str.zfill(5))
    return pl.col(by).cast(pl.String)


def _normalise(lazy: pl.LazyFrame, columns: pl.Schema) -> pl.LazyFrame:
    """Older names and codes, USPS state codes, and missing values where zero stands for them."""
    converted = [
        # Files of early years pad their cells with spaces.
        pl.col(name).str.strip_chars().replace("", None).cast(pl.Float64).cast(pl.Int32)
        for name in columns.names()
        if name in _NUMBERS and columns[name] in (pl.String, pl.Categorical)
    ]
    changes: list[pl.Expr] = []
    state = next((name for name in _STATE_NAMES if name in columns), None)
    if state is not None:
        known = {str(s.fips): s.usps for s in states.STATES}
        known |= {f"{s.fips:02d}": s.usps for s in states.STATES}
        text = pl.col(state).cast(pl.Int32) if columns[state].is_numeric() else pl.col(state)
        changes.append(text.cast(pl.String).str.strip_chars().replace(known).alias("ST"))
    for new, old in pums.RENAMED.items():
        if new in columns and old not in columns:
            code = pl.col(new).cast(pl.Int32)
            changes.append(
                code.replace_strict(pums.RECODES[new], default=None, return_dtype=pl.Int16).alias(old)
            )
    for name in columns.names():
        if name in pums.ZERO_IS_MISSING:
            changes.append(pl.when(pl.col(name) != 0).then(pl.col(name)).alias(name))
    return lazy.with_columns(converted).with_columns(changes)


def _filter(lazy: pl.LazyFrame, task: Task, names: Sequence[str]) -> pl.LazyFrame:
    labelled = task.label in names
    for text in task.filter:
        rule = Rule.parse(text)
        absent = [name for name in rule.columns if name not in names]
        if not absent:
            lazy = lazy.filter(_expression(rule))
        elif not labelled:
            raise DataError(f"column '{absent[0]}' is missing from the data; the filter '{text}' reads it")
        # A labelled extract without the column was filtered by whoever labelled it.
    return lazy


def _label(lazy: pl.LazyFrame, task: Task, names: Sequence[str]) -> pl.LazyFrame:
    rule = Rule.parse(task.target)
    if all(name in names for name in rule.columns):
        return lazy.with_columns(_expression(rule).cast(pl.Int8).alias(task.label))
    if task.label in names:
        return lazy
    near = sorted(name for name in names if name.split("_")[0] == rule.columns[0])
    hint = f"; the data holds '{near[0]}' instead" if near else ""
    raise DataError(
        f"column '{rule.columns[0]}' (or the label '{task.label}') is missing from the data; "
        f"the target '{task.target}' reads it{hint}"
    )


def _expression(rule: Rule) -> pl.Expr:
    """The rule as a polars expression; a missing value answers no."""
    answer = pl.lit(True)
    for column, op, value in rule.comparisons:
        this = pl.col(column)
        answer = answer & {
            "<": this < value,
            "<=": this <= value,
            ">": this > value,
            ">=": this >= value,
            "==": this == value,
            "!=": this != value,
        }[op].fill_null(False)
    return answer
