"""Values: from codes back to rows that the schema reads as these codes.

Columns may read the same source (a feature in bins and a target by rule), rules may join several, and the row filter
reads them too. So sources that are read together are solved together: possible values are listed, the schema's own
encoder says which codes each gives, and a record gets one of the values that give all of its codes. Codes that no
value gives are moved to the nearest ones that some value does, so reading a double always gives back its codes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from ..errors import DataError, FedwiseError
from ..schema.codes import encode_column
from ..schema.crossing import crossed_codes
from ..schema.mark import CODEBOOK, codebook_mark
from ..schema.rule import Rule
from ..schema.schema import Column, Schema

Ints = npt.NDArray[np.int64]
Records = npt.NDArray[np.int16]
Value = int | float | str | None

#: Most whole numbers of an interval that are listed one by one; wider ones are spread over that many.
_LISTED = 64
#: Most combinations of values of sources that are read together.
_COMBINED = 4_096
#: How far beyond the outermost number of a schema a value may lie.
_BEYOND = 1.0


@dataclass(frozen=True, eq=False)
class Group:
    """Sources that are read together, and what their values may be.

    Parameters
    ----------
    variables
        Positions of the columns that read these sources alone.
    rows
        Possible values, a column for each source.
    codes
        Shape (possible values, variables): what the schema makes of them.
    sizes
        Levels of each variable.
    """

    variables: tuple[int, ...]
    rows: pl.DataFrame
    codes: Records
    sizes: tuple[int, ...]


class Chooser(Protocol):
    """Chooses among the possible values of a group."""

    def draw(self, rows: Records, rng: np.random.Generator) -> Ints:
        """The place of a possible value for each record."""
        ...


class Values:
    """All that is needed to write rows of a schema.

    Raises
    ------
    FedwiseError
        No value of some column satisfies the row filter.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.groups = [_solve(schema, names) for names in _together(schema)]

    def possible(self, x: int, y: int) -> npt.NDArray[np.bool_]:
        """Which codes of two variables occur together at all: shape (levels of x, levels of y)."""
        shape = self.schema.sizes[x], self.schema.sizes[y]
        allowed = np.ones(shape, dtype=bool)
        for group in self.groups:
            for variable, axis in ((x, 0), (y, 1)):
                if variable in group.variables:
                    seen = np.zeros(shape[axis], dtype=bool)
                    seen[group.codes[:, group.variables.index(variable)]] = True
                    allowed &= seen[:, None] if axis == 0 else seen
            if x in group.variables and y in group.variables:
                both = np.zeros(shape, dtype=bool)
                both[group.codes[:, group.variables.index(x)], group.codes[:, group.variables.index(y)]] = (
                    True
                )
                allowed &= both
        return allowed

    def frame(
        self, rows: Records, rng: np.random.Generator, drawn: Mapping[int, Chooser] | None = None
    ) -> tuple[pl.DataFrame, Records]:
        """Values for records of codes, shape (records, variables), and the codes they give.

        The two differ only where no value gives a record's codes.

        Parameters
        ----------
        drawn
            Who chooses among the possible values of a group, by its number; see `fedwise.doubling.within`. Without one
            all are equally likely.
        """
        rows = rows.copy()
        parts = []
        for number, group in enumerate(self.groups):
            chosen = _choose(group, rows, rng)
            if drawn is not None and number in drawn:
                better = drawn[number].draw(rows, rng)
                fits = (group.codes[better] == rows[:, group.variables]).all(axis=1)
                chosen = np.where(fits, better, chosen)
            rows[:, group.variables] = group.codes[chosen]
            parts.append(group.rows[chosen])
        frame = pl.concat(parts, how="horizontal")
        if self.schema.codebook:
            frame = frame.with_columns(pl.lit(codebook_mark(self.schema.codebook)).alias(CODEBOOK))
        return frame, rows


def _together(schema: Schema) -> list[tuple[str, ...]]:
    """Sources in groups: those that one column or one rule of the filter reads belong together."""
    reads = [found for column in schema.columns if (found := _sources(column))]
    reads += [Rule.parse(rule).columns for rule in schema.where]
    groups: list[set[str]] = []
    for names in reads:
        joined = set(names).union(*(group for group in groups if group & set(names)))
        groups = [group for group in groups if not group & joined] + [joined]
    order = list(dict.fromkeys(name for names in reads for name in names))
    return sorted(
        (tuple(sorted(group, key=order.index)) for group in groups), key=lambda g: order.index(g[0])
    )


def _sources(column: Column) -> tuple[str, ...]:
    """What the double's column is read from: of several names a column may have, the first."""
    if column.cross is not None:
        return tuple(dict.fromkeys(name for part in column.cross for name in _sources(part)))
    return column.sources if column.rule is not None else column.sources[:1]


def _solve(schema: Schema, names: tuple[str, ...]) -> Group:
    """List the values of sources that satisfy the row filter, and their codes."""
    variables = tuple(i for i, column in enumerate(schema.columns) if set(_sources(column)) & set(names))
    columns = [schema.columns[i] for i in variables]
    plain = [part for column in columns for part in column.cross or (column,)]
    rules = [Rule.parse(text) for text in schema.where if set(Rule.parse(text).columns) & set(names)]
    lists = [_candidates(name, plain, rules) for name in names]
    rows = _combined(names, lists, seed=len(variables))
    for rule in rules:
        rows = rows.filter(pl.Series(rule.evaluate(rows)[0]))
    codes = np.full((rows.height, len(columns)), -1, np.int16)
    for at, column in enumerate(columns):
        codes[:, at] = _codes(column, rows)
    valid = (codes >= 0).all(axis=1)
    if not valid.any():
        raise FedwiseError(
            f"schema '{schema.name}' must let some value of '{names[0]}' pass its filter and domains; check its rules"
        )
    return Group(
        variables, rows.filter(pl.Series(valid)), codes[valid], tuple(column.size for column in columns)
    )


def _candidates(name: str, columns: Sequence[Column], rules: Iterable[Rule]) -> pl.Series:
    """Values of one source on every side of every limit the schema sets, evenly spread within bins."""
    parsed = [*(Rule.parse(c.rule) for c in columns if c.rule is not None), *rules]
    limits = [c.value for rule in parsed for c in rule.comparisons if c.column == name]
    texts = [value for value in limits if isinstance(value, str)]
    numbers = [value for value in limits if not isinstance(value, str)]
    edges: list[float] = []
    missing = False
    for column in columns:
        if name not in _sources(column):
            continue
        missing |= column.missing == "other"
        if column.levels is not None:
            texts += [level for level in column.levels if isinstance(level, str)]
            numbers += [float(level) for level in column.levels if not isinstance(level, str)]
        edges += column.bins or ()
    empty: list[Value] = [None] if missing else []
    if texts:
        spare = next(word for n in range(len(texts) + 1) if (word := f"other{n or ''}") not in texts)
        return pl.Series(name, [*dict.fromkeys(texts), spare, *empty], dtype=pl.String)
    marks = sorted({*numbers, *edges})
    whole = all(mark == math.floor(mark) for mark in marks)
    found: set[float] = set(marks) | {marks[0] - _BEYOND, marks[-1] + _BEYOND} if marks else {0.0}
    for low, high in pairwise(marks):
        found |= set(_between(low, high, whole))
    ordered: list[Value] = [int(value) for value in sorted(found)] if whole else [*sorted(found)]
    return pl.Series(name, [*ordered, *empty], dtype=pl.Int64 if whole else pl.Float64)


def _between(low: float, high: float, whole: bool) -> list[float]:
    """Values inside an interval: every whole number of a short one, evenly spread ones of a long one."""
    if whole and high - low <= _LISTED:
        return [float(value) for value in range(int(low) + 1, int(high))]
    spread = np.linspace(low, high, _LISTED, endpoint=False)
    return [*(np.unique(np.rint(spread)) if whole else spread).tolist()]


def _combined(names: tuple[str, ...], lists: list[pl.Series], *, seed: int) -> pl.DataFrame:
    """All combinations of the sources' values, or so many drawn at random."""
    total = math.prod(len(values) for values in lists)
    if total <= _COMBINED or len(lists) == 1:
        places = np.indices([len(values) for values in lists]).reshape(len(lists), -1)
    else:
        rng = np.random.default_rng(seed)
        places = np.stack([rng.integers(len(values), size=_COMBINED) for values in lists])
    return pl.DataFrame([values[index] for values, index in zip(lists, places, strict=True)])


def _codes(column: Column, rows: pl.DataFrame) -> Records:
    """Code of every row, -1 where the schema would stop."""
    if column.cross is not None:
        return crossed_codes(column.cross, [_codes(part, rows) for part in column.cross], rows.height)
    try:
        return encode_column(column, rows)
    except DataError:
        pass
    if column.levels is not None and "other" in column.levels:
        # The extra level below would be called as one of its own.
        known = (
            rows.get_column(_sources(column)[0]).cast(pl.String).is_in(column.levels).fill_null(value=False)
        )
        codes = np.full(rows.height, -1, np.int16)
        codes[known.to_numpy()] = encode_column(column, rows.filter(known))
        return codes
    # With an extra level for what would stop, and that level taken back.
    lenient = msgspec.structs.replace(column, missing="other", unknown="other")
    codes = encode_column(lenient, rows)
    stops = codes == lenient.size - 1
    if column.has_other:
        null = np.asarray(
            pl.any_horizontal(pl.col(list(_sources(column))).is_null()).pipe(rows.select).to_series()
        )
        stops &= ~null if column.missing == "other" else null
    return np.where(stops, -1, codes).astype(np.int16)


def _choose(group: Group, rows: Records, rng: np.random.Generator) -> Ints:
    """For each record one of the possible values that give its codes, each as likely as the others."""
    wanted = _keys(rows[:, group.variables], group.sizes)
    keys = _keys(group.codes, group.sizes)
    order = np.argsort(keys, kind="stable")
    first, end = np.searchsorted(keys[order], wanted), np.searchsorted(keys[order], wanted, side="right")
    for key in np.unique(wanted[first == end]):
        # No value gives these codes: those of the nearest ones are taken.
        at = np.flatnonzero(wanted == key)
        off = (group.codes != rows[at[0], group.variables]).sum(axis=1)
        nearest = int(keys[np.argmin(off)])
        first[at], end[at] = np.searchsorted(keys[order], [nearest, nearest + 1])
    places = first + (rng.random(len(rows)) * (end - first)).astype(np.int64)
    return np.asarray(order[places], dtype=np.int64)


def _keys(codes: Records, sizes: tuple[int, ...]) -> Ints:
    """One number for each combination of codes."""
    keys = np.zeros(len(codes), np.int64)
    for at, size in enumerate(sizes):
        keys = keys * size + codes[:, at]
    return keys
