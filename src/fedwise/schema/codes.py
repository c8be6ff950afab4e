"""Codes: values of one column as integers of its public domain.

Look-up tables span what the schema declares, never what the data holds. Whole numbers are compared as
whole numbers: a detour through floats would fold 2^53 + 1 into 2^53.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..deferred import Deferred
from ..errors import DataError
from .cells import has_decimal_commas
from .crossing import crossed_codes
from .rule import Rule

if TYPE_CHECKING:
    from .schema import Column

if TYPE_CHECKING:
    import polars as pl
else:
    pl = Deferred("polars")

#: A look-up table over this many integers is built at once; wider domains are searched.
_TABLE_SPAN = 1_000_000


def encode_column(column: Column, rows: pl.DataFrame) -> npt.NDArray[np.int16]:
    """Code of each row in one column's public domain, shape (rows,).

    Raises
    ------
    DataError
        The column is missing or of the wrong type, or holds a missing or unknown value where the
        schema says stop. The message never holds a value or a count.
    """
    if column.cross is not None:
        parts = [encode_column(part, rows) for part in column.cross]
        return crossed_codes(column.cross, parts, rows.height)
    if column.rule is not None:
        for name in column.sources:
            if name not in rows.columns:
                raise DataError(
                    f"column '{name}' is missing from the data; the rule '{column.rule}' reads it"
                )
        yes, missing = Rule.parse(column.rule).evaluate(rows)
        codes = yes.astype(np.int16)
        unknown = np.zeros_like(missing)
    else:
        present = [name for name in column.sources if name in rows.columns]
        if not present:
            wanted = " or ".join(f"'{name}'" for name in column.sources)
            raise DataError(
                f"column {wanted} is missing from the data; add it, or name its source in the schema"
            )
        series = rows.get_column(present[0])
        missing = missing_values(series)
        if missing.all():
            # No value, no type to check: an empty CSV column, or a file of no rows, reads as text.
            codes, unknown = np.zeros(len(series), np.int16), np.zeros(len(series), dtype=bool)
        elif column.bins is not None:
            codes, unknown = _encode_bins(column, series)
        else:
            codes, unknown = _encode_levels(column, series)
        unknown &= ~missing
    _place_other(column, codes, missing, column.missing, "a missing value", "missing")
    _place_other(column, codes, unknown, column.unknown, "a value outside its declared domain", "unknown")
    return codes


def missing_values(series: pl.Series) -> npt.NDArray[np.bool_]:
    """Which values are missing: nulls, and NaN among floats. Avoids polars' query engine where it can."""
    if series.dtype.is_float():
        return np.asarray(np.isnan(series.to_numpy()), dtype=np.bool_)
    if series.null_count() == 0:
        return np.zeros(len(series), dtype=bool)
    return series.is_null().to_numpy()


def _place_other(
    column: Column,
    codes: npt.NDArray[np.int16],
    where: npt.NDArray[np.bool_],
    handling: str,
    what: str,
    key: str,
) -> None:
    if not where.any():
        return
    if handling == "stop":
        raise DataError(
            f"column '{column.name}' holds {what} and the schema says stop; "
            f'clean the data, or declare {key} = "other" for this column'
        )
    codes[where] = column.size - 1


def _encode_bins(column: Column, series: pl.Series) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.bool_]]:
    assert column.bins is not None
    if not (series.dtype.is_numeric() or series.dtype == pl.Boolean):
        raise DataError(
            f"column '{column.name}' must hold numbers to be binned, got {_type_name(series)}{_cure(series)}"
        )
    edges = np.asarray(column.bins)
    if _is_whole(series) and float(np.abs(edges).max()) <= 2**53:
        # For whole numbers v ≥ e is v ≥ ⌈e⌉, exactly.
        starts = np.ceil(edges).astype(np.int64)
        return _search_integers(starts, series)
    values = series.cast(pl.Float64).to_numpy()
    codes = np.searchsorted(edges, values, side="right") - 1
    unknown = ~((values >= edges[0]) & (values < edges[-1]))
    codes[unknown] = 0
    return codes.astype(np.int16), unknown


def _encode_levels(column: Column, series: pl.Series) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.bool_]]:
    assert column.levels is not None
    if isinstance(column.levels[0], str):
        if series.dtype not in (pl.String, pl.Categorical, pl.Enum):
            raise DataError(
                f"column '{column.name}' must hold text, as its levels do, got {_type_name(series)}"
            )
        lookup = {level: code for code, level in enumerate(column.levels)}
        coded = series.cast(pl.String).replace_strict(lookup, default=-1, return_dtype=pl.Int16)
        codes = coded.fill_null(-1).to_numpy().astype(np.int16)
    else:
        if not (series.dtype.is_numeric() or series.dtype == pl.Boolean):
            raise DataError(
                f"column '{column.name}' must hold numbers, as its levels do, got {_type_name(series)}{_cure(series)}"
            )
        codes = _encode_integers(np.asarray(column.levels, dtype=np.int64), series)
    unknown = codes < 0
    codes[unknown] = 0
    return codes, unknown


def _encode_integers(levels: npt.NDArray[np.int64], series: pl.Series) -> npt.NDArray[np.int16]:
    """Code of each value, -1 where it is no level."""
    order = np.argsort(levels)
    ascending = levels[order]
    if _is_whole(series):
        whole, inside = _whole_inside(series, int(ascending[0]), int(ascending[-1]))
    else:
        values = series.cast(pl.Float64).to_numpy()
        with np.errstate(invalid="ignore"):
            inside = (values >= ascending[0]) & (values <= ascending[-1]) & (values == np.floor(values))
        whole = np.where(inside, values, ascending[0]).astype(np.int64)
    span = int(ascending[-1]) - int(ascending[0]) + 1
    codes: npt.NDArray[np.int16]
    if span <= _TABLE_SPAN:
        # The table spans the *declared* levels only, never what the data holds.
        table = np.full(span, -1, dtype=np.int16)
        table[ascending - ascending[0]] = order
        codes = table[whole - ascending[0]]
    else:
        at = np.searchsorted(ascending, whole)
        codes = np.where(ascending[at] == whole, order[at], -1).astype(np.int16)
    codes[~inside] = -1
    return codes


def _search_integers(
    starts: npt.NDArray[np.int64], series: pl.Series
) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.bool_]]:
    """Bin ``[starts[i], starts[i+1])`` of each whole number, and which numbers lie in none."""
    low, end = int(starts[0]), int(starts[-1])
    if low == end:
        return np.zeros(len(series), np.int16), np.ones(len(series), dtype=bool)
    whole, inside = _whole_inside(series, low, end - 1)
    if end - low <= _TABLE_SPAN:
        table = np.repeat(np.arange(len(starts) - 1, dtype=np.int16), np.diff(starts))
        codes = table[whole - low]
    else:
        codes = (np.searchsorted(starts, whole, side="right") - 1).astype(np.int16)
    codes[~inside] = 0
    return codes, ~inside


def _whole_inside(
    series: pl.Series, low: int, high: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Whole numbers as int64, those outside ``[low, high]`` replaced by `low`, and which are inside."""
    if series.dtype == pl.Boolean:
        series = series.cast(pl.Int8)
    raw = (series.fill_null(0) if series.null_count() else series).to_numpy()
    inside = (raw >= low) & (raw <= high)
    return np.where(inside, raw.astype(np.int64), low), inside


def _is_whole(series: pl.Series) -> bool:
    """Whether the values are integers that numpy holds exactly (128-bit ones are not)."""
    return series.dtype == pl.Boolean or series.dtype in (
        pl.Int8,
        pl.Int16,
        pl.Int32,
        pl.Int64,
        pl.UInt8,
        pl.UInt16,
        pl.UInt32,
        pl.UInt64,
    )


def _cure(series: pl.Series) -> str:
    """What to do about text where numbers belong; nothing of the text itself."""
    if series.dtype not in (pl.String, pl.Categorical, pl.Enum):
        return ""
    if has_decimal_commas(series):
        return '; its numbers have decimal commas: declare decimal = "," in the schema'
    return '; declare its codes for missing values in the schema, such as null = ["N", "?"]: fedwise check lists them'


def _type_name(series: pl.Series) -> str:
    return "text" if series.dtype in (pl.String, pl.Categorical, pl.Enum) else str(series.dtype)
