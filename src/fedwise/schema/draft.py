"""Draft: a schema to be completed by a person, made from column names and types only.

No value is looked at beyond telling numbers from text in a text file, unless the file is said to be public. Domains
come from public knowledge; the draft leaves them empty, so it cannot be used before someone has filled them in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import polars as pl

from ..files import format_toml
from .cells import as_numbers

#: Codes that often stand for a missing value.
MISSING_CODES = (
    "N", "NA", "N/A", "?", ".", "-", "-1", "-9", "-99", "-999", "NULL", "null", "None", "nan", "NaN", "missing",
)  # fmt: skip
_TARGET = r"(target|label|outcome|class|income|pincp|salary|default(ed)?|approved|churn|employed|esr|y|pubcov|jwmnp)"
_SENSITIVE = (
    r"(sex|gender|race|rac1p|ethnic(ity)?|hispanic|hisp|religion|disab(ility|led)?|dis|nativity|orientation)"
)
_WEIGHT = r"(.*weight.*|wgt|wt|.*_wt|pwgtp?\d*|pwt\d*|perwt|hhwt|fnlwgt|finalwt)"
_AREA = r"(puma\d*|st|state|fips|area|region|county|district|site|hospital|branch|clinic|bank|client)"
_NAME = r"(id|.*[_ ]id|id[_ ].*|serialno|serial|index|uuid|row|rownum|record|name)"
#: Most levels that a public sample may fill in; columns with more are binned or left to a person.
_MOST_LEVELS = 20
_BINS = 5

_HEADER = """\
# Draft of a schema: what every client's file holds, in public terms. Made from column names and types only.
#
# Confirm every domain from PUBLIC knowledge (a form, a data dictionary), not from the rows:
# levels or ranges read from data would leak what the noise is there to hide.
# Every empty list below has to be filled in before this schema can be used. Keys of a column:
#   role     feature, sensitive (one or several) or target (what is predicted); delete columns not needed
#   levels   the categories, as whole numbers or text;  bins  edges of [a, b) intervals, in increasing order
#   rule     instead of both, for a yes/no target, such as  rule = "INCOME > 50000"
#   source   the column's name in the data, where it differs
#   missing / unknown   "stop" the release, or count as an extra level "other"
#   null     codes that stand for a missing value in this column only
"""
_PUBLIC = """\
# Draft of a schema, filled in from a file that was said to be PUBLIC (--public-sample): levels, quantiles and codes.
# Never do this with private rows. Check every line, and mind values that the sample lacks and clients may have.
"""


def draft_schema(types: Mapping[str, pl.DataType], *, name: str, sample: pl.DataFrame | None = None) -> str:
    """TOML text of a draft, every line explained.

    Parameters
    ----------
    types
        Names and types of the columns. Roles are guessed from the names.
    name
        Of the schema.
    sample
        Rows that are public, to fill in domains from. Never private ones.
    """
    left = {c: why for c in types if (why := _left_out(c))}
    used = {c: kind for c, kind in types.items() if c not in left}
    target, sure = _target(list(used))
    codes = _codes(sample) if sample is not None else []
    decimal = "," if sample is not None and _decimal_commas(sample, codes) else "."
    lines = [_HEADER if sample is None else _PUBLIC, f'name = "{_safe(name)}"']
    if sample is None:
        listed = ", ".join(f'"{code}"' for code in ("N", "?", "-9"))
        lines.append(
            f"# null = [{listed}]    # codes that stand for a missing value anywhere: keep those of your data"
        )
        lines.append('# decimal = ","    # where numbers are written as 12,5')
    elif codes:
        null = format_toml({"null": codes}).rstrip("\n")
        lines.append(f"{null}    # found in the sample; they stand for a missing value")
    if decimal == ",":
        lines.append('decimal = ","    # as in the sample: the mark inside numbers')
    lines.append('# where = ["AGE >= 18"]    # rows that are counted; all others are left out')
    lines += [f"# {_safe(column)} is left out: {why}" for column, why in left.items()]
    taken: set[str] = set()
    for column, kind in used.items():
        safe = _safe(column)
        while safe in taken:
            safe = f"{safe[:61]}_{len(taken)}"
        taken.add(safe)
        lines += ["", f'[columns."{safe}"]', _role(column, target, sure)]
        if safe != column:
            lines.append(format_toml({"source": [column]}).rstrip("\n") + "    # its name in the data")
        own = None if sample is None else sample.get_column(column)
        lines.append(_domain(kind) if own is None else _sampled(own, codes, decimal, target=column == target))
        lines.append(_missing(own, codes, target=column == target))
        lines.append('unknown = "stop"    # or "other": an extra level for values outside the domain')
    return "\n".join(lines) + "\n"


def _left_out(column: str) -> str:
    """Why a column is no variable, by its name; empty where it may be one."""
    if _is(_WEIGHT, column):
        return "a weight of the survey"
    if _is(_NAME, column):
        return "a name or number of the record"
    return (
        f"it names a client or area; release a file of several with --by {column}"
        if _is(_AREA, column)
        else ""
    )


def _target(columns: list[str]) -> tuple[str, bool]:
    """The column that is most likely predicted: by its name, else the last one."""
    named = [column for column in columns if _is(_TARGET, column)]
    return (named[-1], True) if named else (columns[-1] if columns else "", False)


def _role(column: str, target: str, sure: bool) -> str:
    if column == target:
        return f'role = "target"    # CONFIRM: {"by its name" if sure else "the last column; no name says"}'
    if _is(_SENSITIVE, column):
        return 'role = "sensitive"    # by its name: fairness is judged between its levels'
    return 'role = "feature"'


def _domain(kind: pl.DataType) -> str:
    if kind.is_float():
        return "bins = []      # CONFIRM: edges in increasing order, such as [0, 10, 20, 50]"
    if kind.is_integer():
        return "levels = []    # CONFIRM: integer codes, such as [1, 2, 3]; or use bins = [...] instead"
    if kind == pl.Boolean:
        return "levels = [0, 1]    # no, yes"
    if kind in (pl.Date, pl.Datetime):
        return "bins = []      # CONFIRM: years, such as [1900, 1950, 2000, 2030]"
    return 'levels = []    # CONFIRM: the categories, such as ["yes", "no"]; for numbers with codes in them, bins'


def _codes(sample: pl.DataFrame) -> list[str]:
    """Common codes that occur in columns of text, where other values are numbers or words."""
    found: dict[str, None] = {}
    for series in sample:
        if series.dtype == pl.String:
            there = set(series.drop_nulls().str.strip_chars().unique().to_list())
            found |= dict.fromkeys(code for code in MISSING_CODES if code in there and len(there) > 2)
    return list(found)


def _decimal_commas(sample: pl.DataFrame, codes: list[str]) -> bool:
    """Whether some column of text holds numbers once commas are decimal marks,."""
    return any(
        as_numbers(series, codes, ".") is series and as_numbers(series, codes, ",") is not series
        for series in sample
        if series.dtype == pl.String
    )


def _missing(sample: pl.Series | None, codes: list[str], *, target: bool) -> str:
    """What happens to missing values: an extra level where a public sample has some. A target has no such level."""
    if sample is not None and not target:
        text = sample.cast(pl.String).str.strip_chars()
        taken = text.is_in(["other"]).any()  # a category of that name leaves no room for the extra level
        if text.is_in([*codes, ""]).fill_null(True).any() and not taken:
            return (
                'missing = "other"    # the sample has some: they are an extra level; or "stop" the release'
            )
    return 'missing = "stop"    # or "other": an extra level for missing values'


def _sampled(series: pl.Series, codes: list[str], decimal: str, *, target: bool) -> str:
    """A domain from public values: the levels where they are few, quantiles otherwise."""
    if series.dtype == pl.String:
        series = as_numbers(series, codes, decimal)
    if series.dtype == pl.Boolean:
        return "levels = [0, 1]    # no, yes"
    if series.dtype.is_numeric():
        values = series.drop_nulls().cast(pl.Float64).to_numpy()
        values = values[np.isfinite(values)]
        levels = np.unique(values)
        if 0 < len(levels) <= _MOST_LEVELS and (levels == np.floor(levels)).all():
            return f"levels = {[int(level) for level in levels]}    # CONFIRM: as in the sample"
        if target and len(values):
            return (
                f'rule = "{series.name} > {np.median(values):g}"    # CONFIRM: above the median of the sample'
            )
        edges = (
            np.unique(np.round(np.quantile(values, np.linspace(0, 1, _BINS + 1)), 6))
            if len(values)
            else values
        )
        if len(edges) < 2:
            return "bins = []      # CONFIRM: edges in increasing order"
        bins = [*(float(edge) for edge in edges[:-1]), float(edges[-1]) + 1.0]
        return (
            f"bins = {bins}    # CONFIRM: quantiles of the sample; the last edge is above its largest value"
        )
    levels_of_text = sorted(
        set(series.cast(pl.String).drop_nulls().str.strip_chars().to_list()) - set(codes) - {""}
    )
    if 0 < len(levels_of_text) <= _MOST_LEVELS:
        return format_toml({"levels": levels_of_text}).rstrip("\n") + "    # CONFIRM: as in the sample"
    return 'levels = []    # CONFIRM: more than the draft fills in; list the frequent ones and say unknown = "other"'


def _is(pattern: str, name: str) -> bool:
    return re.fullmatch(pattern, name.strip().lower()) is not None


def _safe(name: str) -> str:
    cleaned = re.sub(r"[^\w.\- ]", "_", name, flags=re.ASCII).strip()[:64]
    return cleaned if re.match(r"[A-Za-z_]", cleaned) else f"c_{cleaned}"[:64]
