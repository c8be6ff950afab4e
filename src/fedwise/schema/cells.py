"""Cells: what a file holds, as the values a schema speaks of.

Codes for missing values become missing, numbers written as text become numbers, dates become years. What cannot be
read so is left as it is, and whoever encodes the column says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..deferred import Deferred

if TYPE_CHECKING:
    import polars as pl
else:
    pl = Deferred("polars")

_TRUTH = {"true": 1, "false": 0}


class Wanted(NamedTuple):
    """What a schema makes of one column of the data."""

    numbers: bool
    texts: tuple[str, ...]
    null: tuple[int | str, ...]


def read_cells(rows: pl.DataFrame, wanted: dict[str, Wanted], *, decimal: str, padded: bool) -> pl.DataFrame:
    """The rows with every wanted column as the schema needs it.

    `padded` is for text files: blanks around a cell mean nothing there, and a cell of nothing is missing.
    """
    changed = []
    for name, kind in wanted.items():
        if name not in rows.columns:
            continue
        series = rows.get_column(name)
        found = _convert(series, kind, decimal, padded)
        if found is not series:
            changed.append(found.alias(name))
    return rows.with_columns(changed) if changed else rows


def _convert(series: pl.Series, kind: Wanted, decimal: str, padded: bool) -> pl.Series:
    if series.null_count() == len(series):
        return series
    if _is_text(series):
        if kind.numbers:
            return as_numbers(series, kind.null, decimal)
        if padded or kind.null:
            return _as_text(series, kind, padded)
        return series
    if series.dtype.is_temporal() and kind.numbers and series.dtype in (pl.Date, pl.Datetime):
        return series.dt.year().cast(pl.Int64)
    if series.dtype == pl.Boolean:
        spelt = {text.lower(): text for text in kind.texts}
        if kind.texts and not kind.numbers and set(spelt) <= set(_TRUTH):
            return series.cast(pl.String).replace_strict(spelt, default=None, return_dtype=pl.String)
        return series
    return _without_codes(series, kind.null) if kind.null and series.dtype.is_numeric() else series


def _without_codes(series: pl.Series, null: Sequence[int | str]) -> pl.Series:
    """A column of numbers in which some stand for missing values."""
    codes = number_codes(null)
    if not codes:
        return series
    values = series.cast(pl.Float64).to_numpy()
    gone = np.isin(values, codes)
    return series.set(pl.Series(gone), None) if gone.any() else series


def number_codes(null: Iterable[int | str]) -> list[float]:
    """Those of the codes that are numbers."""
    found = []
    for code in null:
        try:
            found.append(float(code))
        except ValueError:
            continue
    return found


def _as_text(series: pl.Series, kind: Wanted, padded: bool) -> pl.Series:
    text = series.cast(pl.String)
    if padded and all(level == level.strip() for level in kind.texts):
        text = text.str.strip_chars()
    # A quoted cell of nothing is as empty as one without quotes, unless the schema has a level for it.
    codes = {str(code) for code in kind.null} | ({""} - set(kind.texts) if padded else set())
    return text.set(text.is_in(sorted(codes)).fill_null(False), None)


def as_numbers(series: pl.Series, null: Sequence[int | str], decimal: str) -> pl.Series:
    """Text as numbers, truth values or years where all of it can be read so; otherwise as it was."""
    text = series.cast(pl.String).str.strip_chars()
    gone = text.is_in([*map(str, null), ""]).fill_null(False)
    text = text.set(gone, None)
    missing = text.null_count()
    plain = text.str.replace(",", ".", literal=True) if decimal == "," else text
    for found in (
        plain.cast(pl.Int64, strict=False),
        plain.cast(pl.Float64, strict=False),
        text.str.to_lowercase().replace_strict(_TRUTH, default=None, return_dtype=pl.Int64),
        text.str.slice(0, 10).str.to_date("%Y-%m-%d", strict=False).dt.year().cast(pl.Int64),
    ):
        if found.null_count() == missing:
            return _without_codes(found, null)
    return series


def _is_text(series: pl.Series) -> bool:
    return series.dtype in (pl.String, pl.Categorical, pl.Enum)


def has_decimal_commas(series: pl.Series) -> bool:
    """Whether text would be numbers if its commas were decimal points."""
    return (
        _is_text(series)
        and as_numbers(series, (), ".") is series
        and as_numbers(series, (), ",") is not series
    )
