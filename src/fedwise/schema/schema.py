"""Schema: the public description of the data: its columns and its row filter.

Everything here is public and written by people. Domains never come from data: a domain read from
rows would itself leak them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from ..errors import DataError, SchemaError, nearest
from ..files import format_toml, parse_toml, read_bytes, shorten, write_new
from .codes import encode_column
from .column import MAX_RULES, WORDS
from .column import Column as Column
from .column import Role as Role
from .frame import FrameLike, read
from .rule import Rule

MAX_COLUMNS = 500
#: Most tasks that one release may serve; each takes its part of the budget.
MAX_TARGETS = 50


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

    def __reduce__(self) -> tuple[Any, ...]:
        return Schema.parse, (self.to_toml(),)

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
    def targets(self) -> tuple[int, ...]:
        """Positions of the targets."""
        return self._with(Role.TARGET)

    @property
    def target(self) -> int:
        """Position of the target, where there is one only."""
        found = self.targets
        if len(found) > 1:
            raise SchemaError(
                f"schema '{self.name}' has the targets {', '.join(self.names[t] for t in found)}; "
                "name one: task=NAME, --task NAME, or for_target(NAME)"
            )
        return found[0]

    def for_target(self, name: str | None) -> Schema:
        """The schema of one task: without the other targets. ``None`` is the only one there is."""
        if name is None:
            name = self.names[self.target]
        targets = [self.names[t] for t in self.targets]
        if name not in targets:
            raise SchemaError(
                f"task must be one of the targets {', '.join(targets)}, got '{shorten(name)}'{nearest(name, targets)}"
            )
        if len(targets) == 1:
            return self
        kept = tuple(c for c in self.columns if c.role != Role.TARGET or c.name == name)
        return msgspec.structs.replace(self, columns=kept)

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
        """SHA-256 of the JSON form, which keeps a name and a model that were spelt out though they are the defaults.

        A copy, by `to_toml` or by pickle, has the same digest.
        """
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
        _resolve(rows, where)
        try:
            return msgspec.convert({**tree, "columns": rows}, cls)
        except msgspec.ValidationError as error:
            raise SchemaError(f"{where}: {shorten(_place(error, list(columns)))}") from None
        except SchemaError as error:
            raise SchemaError(f"{where}: {error}") from None

    def to_toml(self) -> str:
        """The schema as TOML text; `parse` reads it back unchanged."""
        # What is written and what is left out are as in the digest: a copy must have the same one.
        tree: dict[str, Any] = msgspec.to_builtins(self)
        bodies = tree.pop("columns")
        return format_toml({**tree, "columns": {body.pop("name"): body for body in bodies}})

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the schema as TOML; a file that exists is replaced only with `force`."""
        write_new(Path(path), self.to_toml().encode(), force=force, error=SchemaError)

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

    def satisfied(self, rows: pl.DataFrame, *, may_lack: Collection[str] = ()) -> npt.NDArray[np.bool_]:
        """Which of the rows that `read` returned satisfy `where`, shape (rows,).

        Comparisons with a column of `may_lack` that is absent are left out; any other absent column is an error.
        """
        keep = np.ones(rows.height, dtype=bool)
        for rule in (Rule.parse(text) for text in self.where):
            for name in rule.columns:
                if name not in rows.columns and name not in may_lack:
                    raise DataError(
                        f"column '{name}' is missing from the data; the filter '{rule.text}' reads it"
                    )
            keep &= rule.only(rows.columns).evaluate(rows)[0]
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
    if not targets:
        raise SchemaError('schema must declare at least one column with role = "target"')
    if len(targets) > MAX_TARGETS:
        raise SchemaError(f"schema must declare at most {MAX_TARGETS} targets, got {len(targets)}")
    for text in schema.where:
        Rule.parse(text)


def _resolve(rows: list[dict[str, Any]], where: str) -> None:
    """Put the domains of the columns that a crossed column names in their place."""
    known = {row["name"]: row for row in rows}
    keys = ("name", "role", "levels", "bins", "rule", "source", "missing", "unknown")
    for row in rows:
        parts = row.get("cross")
        if not isinstance(parts, list):
            continue
        found = []
        for part in parts:
            if not isinstance(part, str):
                found.append(part)
                continue
            if part not in known:
                raise SchemaError(
                    f"{where}: columns.{row['name']} crosses '{shorten(part)}', which is no column of the schema"
                    f"{nearest(part, known)}"
                )
            found.append({key: known[part][key] for key in keys if key in known[part]})
        row["cross"] = found


def _place(error: Exception, names: Sequence[str]) -> str:
    """msgspec's message with ``$.columns[3]`` replaced by the column's name, and the words a key may have."""

    def name(match: re.Match[str]) -> str:
        index = int(match.group(1))
        return f"columns.{names[index]}" if index < len(names) else match.group(0)

    text = re.sub(r"\$\.columns\[(\d+)\]", name, str(error)).replace("`$`", "the top level")
    key = text.rstrip("`").rpartition(".")[2]
    return f"{text}; use {', '.join(WORDS[key])}" if key in WORDS else text
