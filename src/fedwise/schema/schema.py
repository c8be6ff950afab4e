"""Schema: the public description of the data: its columns and its row filter.

Everything here is public and written by people. Domains never come from data: a domain read from
rows would itself leak them.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from ..cache import Cache
from ..deferred import Deferred
from ..errors import DataError, SchemaError, nearest
from ..files import format_toml, parse_toml, read_bytes, shorten, write_new
from .cells import Wanted, read_cells
from .codes import encode_column
from .column import MAX_RULES, WORDS, check_null
from .column import Column as Column
from .column import Role as Role
from .frame import FrameLike, column_names, read
from .mark import CODEBOOK, check_codebook
from .rule import Rule
from .shipped import shipped_names, shipped_text

if TYPE_CHECKING:
    import polars as pl
else:
    pl = Deferred("polars")

MAX_COLUMNS = 500
#: Most tasks that one release may serve; each takes its part of the budget.
MAX_TARGETS = 50
#: Schemas by their text: a node reads its owner's again for every message.
_PARSED: Cache[str, Schema] = Cache(most=64)


class Schema(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """All variables of a task, in order, with an optional public row filter.

    `where` lists rules that a row must satisfy to be counted (``AGEP > 16``); a filter looks at one
    record at a time, so it does not change the sensitivity. `null` lists codes that stand for a missing value in every
    column that has no list of its own, and `decimal` is the mark inside numbers of text files. `codebook` is the
    digest of the public codebook that made the features of images, texts or signals; rows made with another one are
    refused (`fedwise.features`).
    """

    columns: tuple[Column, ...]
    name: str = "schema"
    where: tuple[str, ...] = ()
    null: tuple[int | str, ...] = ()
    decimal: Literal[".", ","] = "."
    codebook: str = ""

    def __post_init__(self) -> None:
        _check_schema(self)

    def __reduce__(self) -> tuple[Any, ...]:
        # A function of the module: pickles of other processes name it, where they would copy a method.
        return _read, (self.to_toml(),)

    def __repr__(self) -> str:
        targets = ", ".join(self.names[i] for i in self.targets)
        return f"Schema({self.name!r}, {len(self.columns)} columns, target {targets})"

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
        """Read a ``schema.toml``, or take the shipped schema of that name, such as ``income``."""
        path = Path(path)
        if not path.suffix and not os.path.exists(path):  # which takes a name that no file can have
            known = shipped_names()
            if str(path) not in known:
                shown = shorten(str(path))
                raise SchemaError(f"'{shown}' is neither a file nor a shipped schema{nearest(shown, known)}")
            return cls.parse(shipped_text(str(path)), where=f"shipped schema '{path}'")
        try:
            text = read_bytes(path, what="schema file", error=SchemaError).decode("utf-8")
        except UnicodeDecodeError:
            raise SchemaError(f"schema file '{path}' cannot be read as UTF-8 text") from None
        return cls.parse(text, where=f"schema file '{path}'")

    @classmethod
    def parse(cls, text: str, *, where: str = "schema") -> Schema:
        """Read a schema from TOML text. `where` names the source in errors."""
        return _PARSED.get(text, lambda: cls._parse(text, where))

    @classmethod
    def _parse(cls, text: str, where: str) -> Schema:
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
        _refuse_unfilled(rows, where)
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
        wanted = self.wanted_cells()
        text = [name for name, cells in wanted.items() if cells.texts]
        if self.codebook:
            check_codebook(read(frame, [CODEBOOK], text=[CODEBOOK]), self.codebook)
        rows = read(frame, list(wanted), text=text)
        self._refuse_near_misses(frame, rows, wanted)
        return read_cells(rows, wanted, decimal=self.decimal, padded=isinstance(frame, str | Path))

    def wanted_cells(self) -> dict[str, Wanted]:
        """What is to be made of each column of the data that a variable or the filter reads, by its name there."""
        found: dict[str, Wanted] = {}

        def add(name: str, *, numbers: bool, texts: Sequence[str], null: tuple[int | str, ...]) -> None:
            known = found.get(name, Wanted(False, (), ()))
            found[name] = Wanted(known.numbers or numbers, (*known.texts, *texts), (*known.null, *null))

        def add_rule(text: str, null: tuple[int | str, ...]) -> None:
            for column, _, value in Rule.parse(text).comparisons:
                is_text = isinstance(value, str)
                add(column, numbers=not is_text, texts=[value] if is_text else [], null=null)  # type: ignore[list-item]

        for column in (part for one in self.columns for part in one.parts):
            null = self.null_codes(column)
            if column.rule is not None:
                add_rule(column.rule, null)
                continue
            levels = [level for level in column.levels or () if isinstance(level, str)]
            for name in column.sources:
                add(name, numbers=column.wants_numbers, texts=levels, null=null)
        for text in self.where:
            add_rule(text, self.null)
        return found

    def null_codes(self, column: Column) -> tuple[int | str, ...]:
        """Codes for a missing value in a column: its own list, or the schema's."""
        return self.null if column.null is None else column.null

    def _refuse_near_misses(self, frame: FrameLike, rows: pl.DataFrame, wanted: Collection[str]) -> None:
        """A column that is there under another spelling is named; one that is simply absent is the caller's affair."""
        absent = self.absent_columns(rows.columns)
        there = column_names(frame, list(wanted)) if absent else []
        for name in absent:
            near = near_miss(name, there)
            if near is not None:
                shown = shorten(near)
                raise DataError(
                    f"column '{name}' is missing from the data, which has '{shown}'; rename that column, or write "
                    f'source = ["{shown}"] for it in the schema'
                )

    def absent_columns(self, present: Collection[str]) -> list[str]:
        """Columns of the data that a variable or the filter needs and that are not there, each once."""
        plain = [part for column in self.columns for part in column.parts]
        names = [c.sources[0] for c in plain if c.rule is None and not set(c.sources) & set(present)]
        names += [name for c in plain if c.rule is not None for name in c.sources if name not in present]
        names += [name for rule in self.where for name in Rule.parse(rule).columns if name not in present]
        return list(dict.fromkeys(names))

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


def _read(text: str) -> Schema:
    """The schema of its own text, for pickles."""
    return Schema.parse(text)


def near_miss(name: str, there: Iterable[str]) -> str | None:
    """A name among those there that differs only by case, blanks, marks or an invisible byte order mark."""

    def plain(text: str) -> str:
        return re.sub(r"[\W_]+", "", text).casefold()

    return next((other for other in there if plain(other) == plain(name)), None)


def _check_schema(schema: Schema) -> None:
    if not (0 < len(schema.name) <= 100 and schema.name.isprintable()):
        raise SchemaError("schema name must have 1 to 100 printable characters; rename it")
    # Sizes first: what follows takes time that grows with their square.
    if len(schema.columns) > MAX_COLUMNS:
        raise SchemaError(f"schema must declare at most {MAX_COLUMNS} columns, got {len(schema.columns)}")
    if len(schema.where) > MAX_RULES:
        raise SchemaError(f"schema must filter rows by at most {MAX_RULES} rules, got {len(schema.where)}")
    if schema.codebook and not re.fullmatch(r"[0-9a-f]{64}", schema.codebook):
        raise SchemaError(
            "schema codebook must be a digest of 64 hexadecimal digits; copy it from the codebook"
        )
    names = schema.names
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise SchemaError(f"schema declares column '{twice[0]}' twice; drop one")
    joint = [i for i, column in enumerate(schema.columns) if column.role == Role.JOINT]
    if joint and joint != [len(names) - 1]:
        raise SchemaError("schema must have one joint column at most, the last; fedwise plan --joint adds it")
    targets = [column.name for column in schema.columns if column.role == Role.TARGET]
    if not targets:
        raise SchemaError('schema must declare at least one column with role = "target"')
    if len(targets) > MAX_TARGETS:
        raise SchemaError(f"schema must declare at most {MAX_TARGETS} targets, got {len(targets)}")
    for text in schema.where:
        Rule.parse(text)
    if schema.decimal not in (".", ","):
        raise SchemaError('schema decimal must be a point or a comma; write decimal = ","')
    parts = [part for column in schema.columns for part in column.parts]
    check_null(schema.null, [part for part in parts if part.null is None])


def _refuse_unfilled(rows: list[dict[str, Any]], where: str) -> None:
    """Say at once which columns of a draft are still to be filled in."""
    empty = [f"'{shorten(row['name'])}'" for row in rows if [] in (row.get("levels"), row.get("bins"))]
    if empty:
        what = "column" if len(empty) == 1 else "columns"
        raise SchemaError(
            f"{where}: {what} {', '.join(empty)} must have at least 1 level, got an empty list; fill in levels or bins "
            "from public knowledge (a form, a data dictionary), or delete a column that is not needed"
        )


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
