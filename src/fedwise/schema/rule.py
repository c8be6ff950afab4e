"""Rule: a public yes/no question about one record, such as ``PINCP > 50000``.

Rules define boolean columns and row filters in a schema. They are parsed by a tiny grammar, never
evaluated as code::

    rule       = comparison { "and" comparison }
    comparison = column operator value | value operator column operator value
    operator   = "<" | "<=" | ">" | ">=" | "==" | "!="
    value      = number | "quoted text"
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..deferred import Deferred
from ..errors import DataError, SchemaError

if TYPE_CHECKING:
    import polars as pl
else:
    pl = Deferred("polars")

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_MIRROR = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_TOKEN = re.compile(r"""\s*(<=|>=|==|!=|<|>|[-+]?\d+\.?\d*(?:[eE][-+]?\d+)?|"[^"]*"|'[^']*'|[A-Za-z_]\w*)""")
_GRAMMAR = "write it as COLUMN > NUMBER, 16 < COLUMN < 90, or several joined by 'and'"


class Comparison(NamedTuple):
    """One comparison of a column with a constant."""

    column: str
    op: str
    value: float | str


class Rule(NamedTuple):
    """A conjunction of comparisons."""

    text: str
    comparisons: tuple[Comparison, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the data columns the rule reads, each once."""
        return tuple(dict.fromkeys(c.column for c in self.comparisons))

    @classmethod
    def parse(cls, text: str) -> Rule:
        """Read a rule, or raise `SchemaError` that quotes it."""
        if len(text) > 1000:
            raise SchemaError("rule must be at most 1000 characters long; split it")
        if not text.isprintable():
            raise SchemaError("rule must be one line without control characters; rewrite it")
        parts: list[list[str]] = [[]]
        for token in _tokens(text):
            if token == "and":
                parts.append([])
            else:
                parts[-1].append(token)
        return cls(text, tuple(c for part in parts for c in _parse_part(part, text)))

    def only(self, columns: Collection[str]) -> Rule:
        """The rule without its comparisons with other columns than these."""
        return self._replace(comparisons=tuple(c for c in self.comparisons if c.column in columns))

    def evaluate(self, frame: pl.DataFrame) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Answer the rule for every row.

        Returns
        -------
        yes, missing
            Boolean arrays over rows. A row whose source value is missing is never ``yes``.
        """
        yes = np.ones(frame.height, dtype=bool)
        missing = np.zeros(frame.height, dtype=bool)
        for comparison in self.comparisons:
            series = frame.get_column(comparison.column)
            if series.null_count() == len(series):
                # No value, no type: an empty CSV column reads as text. Nothing can contradict the rule.
                missing[:] = True
                continue
            numeric = series.dtype.is_numeric() or series.dtype == pl.Boolean
            if isinstance(comparison.value, str) == numeric:
                wanted = "text" if isinstance(comparison.value, str) else "numbers"
                raise DataError(
                    f"column '{comparison.column}' must hold {wanted} for the rule '{self.text}'; "
                    "convert the column or change the rule"
                )
            compare = _OPERATORS[comparison.op]
            if isinstance(comparison.value, str):
                null = series.is_null().to_numpy()
                answer = compare(series.cast(pl.String), comparison.value).fill_null(False).to_numpy()
            else:
                # numpy rather than polars: a query costs milliseconds, however few the rows.
                values = series.cast(pl.Float64).to_numpy()
                null = np.isnan(values)
                answer = compare(values, comparison.value)
            yes &= answer
            missing |= null
        return yes & ~missing, missing


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    at = 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            if text[at:].lstrip().startswith("="):
                raise SchemaError(
                    f"rule '{text}' must compare with ==, got a single =; write it as COLUMN == VALUE"
                )
            raise SchemaError(f"rule '{text}' cannot be read at '{text[at : at + 20]}'; {_GRAMMAR}")
        tokens.append(match.group(1))
        at = match.end()
    return tokens


def _parse_part(tokens: list[str], text: str) -> list[Comparison]:
    if len(tokens) == 3 and _is_name(tokens[0]) and not _is_name(tokens[2]):
        column, op, value = tokens
        found = [(column, op, value)]
    elif len(tokens) == 3 and _is_name(tokens[2]) and not _is_name(tokens[0]):
        found = [(tokens[2], _MIRROR.get(tokens[1], ""), tokens[0])]
    elif len(tokens) == 5 and _is_name(tokens[2]) and not _is_name(tokens[0]) and not _is_name(tokens[4]):
        low, first, column, second, high = tokens
        found = [(column, _MIRROR.get(first, ""), low), (column, second, high)]
    else:
        raise SchemaError(f"rule '{text}' is not a comparison; {_GRAMMAR}")
    comparisons = []
    for column, op, value in found:
        if op not in _OPERATORS:
            raise SchemaError(f"rule '{text}' has no comparison sign where one belongs; {_GRAMMAR}")
        if value[0] in "\"'":
            if op not in ("==", "!="):
                raise SchemaError(f"rule '{text}' must compare text with == or !=; {_GRAMMAR}")
            comparisons.append(Comparison(column, op, value[1:-1]))
        elif value in _OPERATORS:
            raise SchemaError(f"rule '{text}' is not a comparison; {_GRAMMAR}")
        else:
            comparisons.append(Comparison(column, op, float(value)))
    return comparisons


def _is_name(token: str) -> bool:
    return token[0].isalpha() or token[0] == "_"
