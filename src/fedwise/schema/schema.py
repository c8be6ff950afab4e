"""Schema: the public description of the data. Columns, their roles, their domains.

Everything here is public and written by people. Domains never come from data: a domain read from
rows would itself leak them.
"""

from __future__ import annotations

import enum
import hashlib
import math
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from ..errors import DataError, SchemaError, nearest
from ..files import parse_toml, read_bytes, shorten
from .codes import encode_column
from .frame import FrameLike, read
from .rule import Rule

MAX_LEVELS = 10_000
MAX_COLUMNS = 500
#: Most rules of a row filter, and most names a column may have in the data.
MAX_RULES = 100
_NAME = re.compile(r"[A-Za-z_][\w.\- ]{0,63}")

Handling = Literal["stop", "other"]


class Role(enum.StrEnum):
    """What a column is to the objective."""

    FEATURE = "feature"
    SENSITIVE = "sensitive"
    TARGET = "target"


class Column(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One variable: a role and a public domain of one of three kinds.

    Parameters
    ----------
    name
        The variable's name in every table.
    role
        feature, sensitive or target.
    levels
        Categorical domain: integers or texts.
    bins
        Numeric domain: edges ``e0 < e1 < …`` of the half-open intervals ``[e0, e1), [e1, e2), …``.
    rule
        Boolean domain: a rule such as ``PINCP > 50000``; codes are 0 (no) and 1 (yes).
    source
        Names the column may have in the data, the first one present is used. Default: `name`.
    missing, unknown
        What to do with a missing value and with one outside the domain: ``stop`` the release, or
        count it in an extra ``other`` level.
    model
        How training sees the column: ``one-hot`` over the codes, ``scaled`` to
        ``(x - centre) / width``, or ``drop``.
    scale
        ``(centre, width)`` for ``model="scaled"``; default: middle and half width of the bins.
    """

    name: str
    role: Role
    levels: tuple[int | str, ...] | None = None
    bins: tuple[float, ...] | None = None
    rule: str | None = None
    source: tuple[str, ...] = ()
    missing: Handling = "stop"
    unknown: Handling = "stop"
    model: Literal["one-hot", "scaled", "drop"] = "one-hot"
    scale: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        _check_column(self)

    @property
    def has_other(self) -> bool:
        """Whether the domain ends with the extra level ``other``."""
        return "other" in (self.missing, self.unknown)

    @property
    def labels(self) -> tuple[str, ...]:
        """Readable name of each code, in code order."""
        if self.levels is not None:
            named = [str(level) for level in self.levels]
        elif self.bins is not None:
            named = [f"[{low:g},{high:g})" for low, high in pairwise(self.bins)]
        else:
            named = ["no", "yes"]
        return (*named, "other") if self.has_other else tuple(named)

    @property
    def size(self) -> int:
        """Number of codes."""
        if self.levels is not None:
            known = len(self.levels)
        else:
            known = 2 if self.bins is None else len(self.bins) - 1
        return known + self.has_other

    @property
    def sources(self) -> tuple[str, ...]:
        """Names this column may have in the data."""
        if self.rule is not None:
            return Rule.parse(self.rule).columns
        return self.source or (self.name,)

    @property
    def text_sources(self) -> tuple[str, ...]:
        """Those of the `sources` that hold text, whatever a CSV file makes of them."""
        if self.rule is not None:
            return tuple(c.column for c in Rule.parse(self.rule).comparisons if isinstance(c.value, str))
        return self.sources if self.levels is not None and isinstance(self.levels[0], str) else ()


class Schema(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """All variables of a task, in order, with an optional public row filter.

    `where` lists rules that a row must satisfy to be counted (``AGEP > 16``); a filter looks at one
    record at a time, so it does not change the sensitivity.
    """

    columns: tuple[Column, ...]
    name: str = "schema"
    where: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_schema(self)

    @property
    def names(self) -> tuple[str, ...]:
        """Variable names in order."""
        return tuple(column.name for column in self.columns)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of codes of each variable."""
        return tuple(column.size for column in self.columns)

    @property
    def features(self) -> tuple[int, ...]:
        """Positions of the features."""
        return self._with(Role.FEATURE)

    @property
    def sensitive(self) -> tuple[int, ...]:
        """Positions of the sensitive attributes."""
        return self._with(Role.SENSITIVE)

    @property
    def target(self) -> int:
        """Position of the target."""
        return self._with(Role.TARGET)[0]

    def _with(self, role: Role) -> tuple[int, ...]:
        return tuple(i for i, column in enumerate(self.columns) if column.role == role)

    def column(self, name: str) -> Column:
        """The column called `name`, or a `SchemaError` that suggests the nearest name."""
        for column in self.columns:
            if column.name == name:
                return column
        raise SchemaError(f"schema '{self.name}' has no column '{name}'{nearest(name, self.names)}")

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON form: equal schemas have equal digests."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()

    @classmethod
    def load(cls, path: str | Path) -> Schema:
        """Read a ``schema.toml``."""
        path = Path(path)
        try:
            text = read_bytes(path, what="schema file", error=SchemaError).decode("utf-8")
        except UnicodeDecodeError:
            raise SchemaError(f"schema file '{path}' cannot be read as UTF-8 text") from None
        return cls.parse(text, where=f"schema file '{path}'")

    @classmethod
    def parse(cls, text: str, *, where: str = "schema") -> Schema:
        """Read a schema from TOML text. `where` names the source in errors."""
        tree = parse_toml(text, what=where, error=SchemaError)
        columns = tree.pop("columns", None)
        if not isinstance(columns, dict) or not columns:
            raise SchemaError(f"{where} must have at least one [columns.NAME] table")
        rows = []
        for name, body in columns.items():
            shown = shorten(name)
            if not isinstance(body, dict):
                raise SchemaError(f"{where}: columns.{shown} must be a table, such as [columns.{shown}]")
            if "name" in body:
                raise SchemaError(f"{where}: columns.{shown} is named by its header; drop the key 'name'")
            if isinstance(body.get("source"), str):
                body = {**body, "source": [body["source"]]}
            rows.append({"name": name, **body})
        try:
            return msgspec.convert({**tree, "columns": rows}, cls)
        except msgspec.ValidationError as error:
            raise SchemaError(f"{where}: {shorten(_place(error, list(columns)))}") from None
        except SchemaError as error:
            raise SchemaError(f"{where}: {error}") from None

    def to_toml(self) -> str:
        """The schema as TOML text; `parse` reads it back unchanged."""
        lines = [f"name = {_toml(self.name)}"]
        if self.where:
            lines.append(f"where = {_toml(list(self.where))}")
        for column in self.columns:
            lines += ["", f"[columns.{_toml(column.name)}]"]
            for key, value in msgspec.to_builtins(column).items():
                if key != "name":
                    lines.append(f"{key} = {_toml(value)}")
        return "\n".join(lines) + "\n"

    def save(self, path: str | Path) -> None:
        """Write the schema as TOML."""
        Path(path).write_text(self.to_toml(), encoding="utf-8")

    def read(self, frame: FrameLike) -> pl.DataFrame:
        """The columns the schema names, of every row: the one way from a frame or file to values.

        Release, training, prediction and checks all read through here, so a column of text codes such as
        ``01`` is text for each of them. Columns that are absent are left out; the caller reports those it needs.
        """
        rules = [Rule.parse(text) for text in self.where]
        wanted = dict.fromkeys(
            [name for column in self.columns for name in column.sources]
            + [name for rule in rules for name in rule.columns]
        )
        text = [name for column in self.columns for name in column.text_sources]
        text += [c.column for rule in rules for c in rule.comparisons if isinstance(c.value, str)]
        return read(frame, list(wanted), text=text)

    def satisfied(self, rows: pl.DataFrame) -> npt.NDArray[np.bool_]:
        """Which of the rows that `read` returned satisfy `where`, shape (rows,)."""
        keep = np.ones(rows.height, dtype=bool)
        for rule in (Rule.parse(text) for text in self.where):
            for name in rule.columns:
                if name not in rows.columns:
                    raise DataError(
                        f"column '{name}' is missing from the data; the filter '{rule.text}' reads it"
                    )
            keep &= rule.evaluate(rows)[0]
        return keep

    def select_rows(self, frame: FrameLike) -> pl.DataFrame:
        """Read the needed columns of `frame` and keep the rows that satisfy `where`."""
        rows = self.read(frame)
        return rows.filter(pl.Series(self.satisfied(rows))) if self.where else rows

    def encode(self, frame: FrameLike) -> npt.NDArray[np.int16]:
        """Turn rows into integer codes.

        Returns
        -------
        codes
            Shape (variables, rows), C order: one contiguous line of codes for each variable.

        Raises
        ------
        DataError
            A column is missing or of the wrong type, or a value is missing or outside its domain
            where the schema says stop. The message never holds a value or a count.
        """
        rows = self.select_rows(frame)
        codes = np.empty((len(self.columns), rows.height), dtype=np.int16)
        for position, column in enumerate(self.columns):
            codes[position] = encode_column(column, rows)
        return codes


def _check_column(column: Column) -> None:
    name = column.name
    if not _NAME.fullmatch(name):
        raise SchemaError(
            f"column name '{shorten(name[:70])}' must start with a letter and hold letters, digits, spaces, "
            "dots, dashes (64 at most); rename it and give the data's own name as source"
        )
    # Columns of real files have odd names, an empty one and line breaks among them: only sizes are bounded.
    if len(column.source) > MAX_RULES or any(len(source) > 200 for source in column.source):
        raise SchemaError(f"column '{name}' must name at most {MAX_RULES} sources of at most 200 characters")
    kinds = [kind for kind in ("levels", "bins", "rule") if getattr(column, kind) is not None]
    if len(kinds) != 1:
        raise SchemaError(
            f"column '{name}' must declare exactly one of levels, bins or rule, got {kinds or 'none'}"
        )
    if len(column.levels or column.bins or ()) > MAX_LEVELS + 1:
        # Before anything is built from them.
        given = len(column.levels or column.bins or ())
        raise SchemaError(f"column '{name}' must have at most {MAX_LEVELS} levels, got {given}; bin it")
    if column.levels is not None:
        if len({str(level) for level in column.levels}) != len(column.levels):
            raise SchemaError(f"column '{name}' must declare each level once")
        if len({isinstance(level, str) for level in column.levels}) > 1:
            raise SchemaError(f"column '{name}' must declare levels of one type: all integers or all text")
        if any(isinstance(level, int) and abs(level) > 2**53 for level in column.levels):
            raise SchemaError(f"column '{name}' must declare integer levels below 2^53 in size")
        if column.has_other and "other" in column.levels:
            raise SchemaError(
                f"column '{name}' cannot declare a level 'other' beside handling \"other\"; rename it"
            )
    if column.bins is not None:
        edges = column.bins
        if not all(math.isfinite(edge) for edge in edges):
            raise SchemaError(f"column '{name}' must declare finite bin edges")
        if any(low >= high for low, high in pairwise(edges)):
            raise SchemaError(f"column '{name}' must declare bin edges in increasing order")
    if column.rule is not None:
        Rule.parse(column.rule)
        if column.source:
            raise SchemaError(f"column '{name}' has a rule, which names its own source; drop 'source'")
    known = column.size - column.has_other
    if known < 1 or (column.role == Role.TARGET and known < 2):
        least = 2 if column.role == Role.TARGET else 1
        raise SchemaError(
            f"{column.role} column '{name}' must have at least {least} levels, got {max(known, 0)}"
        )
    if column.size > MAX_LEVELS:
        raise SchemaError(f"column '{name}' must have at most {MAX_LEVELS} levels, got {column.size}; bin it")
    if column.scale is not None and (
        column.model != "scaled" or not (math.isfinite(column.scale[0]) and 0 < column.scale[1] < math.inf)
    ):
        raise SchemaError(f"column '{name}': scale needs model = \"scaled\" and a positive width")
    if column.model == "scaled" and (column.rule or (column.levels and isinstance(column.levels[0], str))):
        raise SchemaError(f"column '{name}' must be numeric to be scaled; use model = \"one-hot\"")
    if column.model == "scaled" and column.bins is None and column.scale is None:
        raise SchemaError(f"column '{name}' must declare scale = [centre, width] to be scaled without bins")


def _check_schema(schema: Schema) -> None:
    if not (0 < len(schema.name) <= 100 and schema.name.isprintable()):
        raise SchemaError("schema name must have 1 to 100 printable characters; rename it")
    # Sizes first: what follows takes time that grows with their square.
    if len(schema.columns) > MAX_COLUMNS:
        raise SchemaError(f"schema must declare at most {MAX_COLUMNS} columns, got {len(schema.columns)}")
    if len(schema.where) > MAX_RULES:
        raise SchemaError(f"schema must filter rows by at most {MAX_RULES} rules, got {len(schema.where)}")
    names = schema.names
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise SchemaError(f"schema declares column '{twice[0]}' twice; drop one")
    targets = [column.name for column in schema.columns if column.role == Role.TARGET]
    if len(targets) != 1:
        raise SchemaError(f"schema must declare exactly one target column, got {targets or 'none'}")
    if not schema.features:
        raise SchemaError('schema must declare at least one column with role = "feature"')
    for text in schema.where:
        Rule.parse(text)


def _place(error: Exception, names: Sequence[str]) -> str:
    """msgspec's message with ``$.columns[3]`` replaced by the column's name."""

    def name(match: re.Match[str]) -> str:
        index = int(match.group(1))
        return f"columns.{names[index]}" if index < len(names) else match.group(0)

    return re.sub(r"\$\.columns\[(\d+)\]", name, str(error)).replace("`$`", "the top level")


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return msgspec.json.encode(value).decode()
    if isinstance(value, float):
        return repr(int(value)) + ".0" if value.is_integer() and abs(value) < 1e15 else repr(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return str(value)
