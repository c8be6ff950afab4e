"""Column findings: what is wrong with one column of an owner's file, with counts, for the owner alone."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence

import msgspec
import numpy as np
import polars as pl

from ..errors import DataError
from ..files import shorten
from ..schema.cells import has_decimal_commas
from ..schema.codes import encode_column, missing_values
from ..schema.column import Column, Role
from .findings import Finding, from_error, problem, warning

#: Texts that often stand for a missing value, compared without regard to case.
COMMON_CODES = (
    "", "-", "--", ".", "..", "?", "*", "#n/a", "n", "n/a", "na", "nan", "nil", "none", "null", "missing", "unknown",
    "-1", "-7", "-8", "-9", "-99", "-999", "-9999", "99", "999", "9999", "99999", "b", "x",
)  # fmt: skip
#: A rule that fewer than the first share of rows meet, or more than the second, is suspected of a wrong unit. Rare
#: events are what many rules ask for; nearly everybody is not.
_RARE, _COMMON = 0.005, 0.97
#: How many different values are shown.
_SHOWN = 5


def find_in_column(column: Column, rows: pl.DataFrame) -> list[Finding]:
    """Everything about one column that would stop a release, or should be looked at first."""
    names = [name for name in column.sources if name in rows.columns]
    if not names or not rows.height or (column.rule is not None and len(names) < len(column.sources)):
        return []  # reported as absent
    if column.rule is not None:
        return _in_rule(column, rows)
    series = rows.get_column(names[0])
    if series.dtype == pl.String and column.wants_numbers and series.null_count() < len(series):
        return [_text_for_numbers(column, series)]
    found = []
    missing = missing_values(series)
    if missing.any() and column.missing == "stop":
        figures = f"{int(missing.sum())} of {len(series)} rows"
        found.append(
            problem(f"column '{column.name}' has missing values", figures, _for_missing(column, series))
        )
    try:
        codes = encode_column(tolerant(column), rows)
    except DataError as error:
        return [*found, from_error(error)]
    outside = (codes == column.size - column.has_other) & ~missing
    if outside.any():
        shown, top = _top(series.filter(pl.Series(outside)).cast(pl.String))
        cure = f"correct the domain, or {_other(column, 'unknown')}"
        likely = [value for value in top if value.strip().lower() in COMMON_CODES]
        if likely:
            cure = f"{_null_line(column, likely)}\n{cure}"
        figures = f"{int(outside.sum())} of {len(series)} rows: {shown}"
        says = f"column '{column.name}' has values outside its domain"
        found.append(Finding("problem" if column.unknown == "stop" else "note", says, figures, cure))
    return found


def tolerant(column: Column) -> Column:
    """The column with an extra level for whatever does not fit, so that all of it can be counted."""
    found = copy.copy(column)
    for key in ("missing", "unknown"):
        # Not by `replace`: a schema may have a level "other" of its own, and then no extra one. Codes are only counted.
        msgspec.structs.force_setattr(found, key, "other")
    return found


def _for_missing(column: Column, series: pl.Series) -> str:
    """A target gets no extra class for rows that lack it: they are left out, by a rule that a missing value fails."""
    if column.role != Role.TARGET or not re.fullmatch(r"[A-Za-z_]\w*", series.name):
        return _other(column, "missing")
    rule = f"{series.name} > -1e12" if series.dtype.is_numeric() else f"{series.name} != ''"
    leave = "leave such rows out by a rule that all others meet, at the top of the schema"
    return f'clean the data, or {leave}: where = ["{rule}"]'


def _other(column: Column, key: str) -> str:
    rename = 'rename its level "other" and ' if "other" in (column.levels or ()) else ""
    return f'clean the data, or {rename}write for [columns."{column.name}"]: {key} = "other"'


def _top(values: pl.Series) -> tuple[str, list[str]]:
    """The most frequent values, as text for a person and as they are."""
    top = values.value_counts(sort=True).head(_SHOWN)
    shown = ", ".join(f"'{shorten(str(value))[:40]}' {count}×" for value, count in top.iter_rows())
    return shown, [str(value) for value in top.get_column(top.columns[0]).to_list()]


def _text_for_numbers(column: Column, series: pl.Series) -> Finding:
    text = series.str.strip_chars()
    codes = text.filter(text.str.to_lowercase().is_in(COMMON_CODES))
    if has_decimal_commas(text.filter(~text.is_in(codes.implode()))):
        cure = 'write at the top of the schema: decimal = ","'
        if len(codes):
            shown, values = _top(codes)
            cure = f"{cure}\n{_null_line(column, values)}"
            return problem(f"column '{column.name}' has decimal commas, and text", shown, cure)
        return problem(f"column '{column.name}' has decimal commas", cure=cure)
    stray = text.filter(text.cast(pl.Float64, strict=False).is_null() & text.is_not_null())
    shown, values = _top(stray)
    figures = f"{len(stray)} of {len(series)} rows: {shown}"
    return problem(
        f"column '{column.name}' must hold numbers and has text", figures, _null_line(column, values)
    )


def _null_line(column: Column, values: Sequence[str]) -> str:
    known = [str(code) for code in column.null or ()]
    codes = ", ".join(f'"{shorten(value)}"' for value in dict.fromkeys([*known, *values]))
    return f'if these stand for missing values, write for [columns."{column.name}"]: null = [{codes}]'


def _in_rule(column: Column, rows: pl.DataFrame) -> list[Finding]:
    source = rows.get_column(column.sources[0])
    try:
        codes = encode_column(tolerant(column), rows)
    except DataError as error:
        if source.dtype == pl.String:
            return [_text_for_numbers(msgspec.structs.replace(column, name=column.sources[0]), source)]
        return [from_error(error)]
    found = []
    met, lost = float((codes == 1).mean()), int((codes == 2).sum())
    if lost and column.missing == "stop":
        says = f"rule '{column.rule}' reads missing values"
        found.append(problem(says, f"{lost} of {len(codes)} rows", _for_missing(column, source)))
    if met < _RARE or met > _COMMON:
        says = f"rule '{column.rule}' is met by nearly all rows or by nearly none"
        figures = f"{met:.1%} of {len(codes)} rows"
        if source.dtype.is_numeric() and source.null_count() < len(source):
            figures += f", median of {column.sources[0]} {np.nanmedian(source.cast(pl.Float64).to_numpy()):g}"
        found.append(warning(says, figures, "check the unit of the rule and of the column"))
    return found
