"""Column: one variable of a schema, with its role and its public domain."""

from __future__ import annotations

import enum
import math
import operator
import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Literal, get_args

import msgspec

from ..errors import SchemaError
from ..files import shorten
from .crossing import check_parts, crossed_labels, crossed_size
from .rule import Rule

MAX_LEVELS = 10_000
#: Most rules of a row filter, and most names a column may have in the data.
MAX_RULES = 100
_NAME = re.compile(r"[A-Za-z_][\w.\- ]{0,63}")

Handling = Literal["stop", "other"]


class Role(enum.StrEnum):
    """What a column is to the objective."""

    FEATURE = "feature"
    SENSITIVE = "sensitive"
    TARGET = "target"
    #: All sensitive attributes and the target together: see `fedwise.schema.joint`.
    JOINT = "joint"


class Column(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One variable: a role and a public domain of one of four kinds.

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
    cross
        Combinations of other columns, such as sex × race; each part has a domain of its own. In a file the
        parts may be named, where the schema declares them: ``cross = ["SEX", "RAC1P"]``.
    source
        Names the column may have in the data, the first one present is used. Default: `name`.
    missing, unknown
        What to do with a missing value and with one outside the domain: ``stop`` the release, or
        count it in an extra ``other`` level.
    model
        How training sees the column: ``one-hot`` over the codes, ``scaled`` to
        ``(x - centre) / width``, or ``drop``. A target is trained as classes (``one-hot``), as a number
        (``scaled``: the raw number at the client), or as the middle of its bin (``binned``).
    scale
        ``(centre, width)`` for ``model="scaled"``; default: middle and half width of the bins.
    null
        Codes that stand for a missing value in the data, such as ``N``, ``?`` or ``-9``. Default: the schema's.
    """

    name: str
    role: Role
    levels: tuple[int | str, ...] | None = None
    bins: tuple[float, ...] | None = None
    rule: str | None = None
    source: tuple[str, ...] = ()
    missing: Handling = "stop"
    unknown: Handling = "stop"
    # Spelt out here, not by a name: a "one-hot" read from a file is then another object than this default, so
    # msgspec keeps it, and digests stay as they were in 0.1.0.
    model: Literal["one-hot", "scaled", "drop", "binned"] = "one-hot"
    scale: tuple[float, float] | None = None
    cross: tuple[Column, ...] | None = None
    null: tuple[int | str, ...] | None = None

    def __post_init__(self) -> None:
        _coerce(self)
        _check(self)

    @property
    def has_other(self) -> bool:
        """Whether the domain ends with the extra level ``other``."""
        return "other" in (self.missing, self.unknown)

    @property
    def labels(self) -> tuple[str, ...]:
        """Readable name of each code, in code order."""
        if self.cross is not None:
            named = [*crossed_labels(self.cross)]
        elif self.levels is not None:
            named = [str(level) for level in self.levels]
        elif self.bins is not None:
            named = [f"[{low:g},{high:g})" for low, high in pairwise(self.bins)]
        else:
            named = ["no", "yes"]
        return (*named, "other") if self.has_other else tuple(named)

    @property
    def size(self) -> int:
        """Number of codes."""
        if self.cross is not None:
            known = crossed_size(self.cross)
        elif self.levels is not None:
            known = len(self.levels)
        else:
            known = 2 if self.bins is None else len(self.bins) - 1
        return known + self.has_other

    @property
    def sources(self) -> tuple[str, ...]:
        """Names this column may have in the data."""
        if self.cross is not None:
            return tuple(dict.fromkeys(name for part in self.cross for name in part.sources))
        if self.rule is not None:
            return Rule.parse(self.rule).columns
        return self.source or (self.name,)

    @property
    def parts(self) -> tuple[Column, ...]:
        """The columns that are read from the data: those that are crossed, or this one."""
        return (self,) if self.cross is None else self.cross

    @property
    def wants_numbers(self) -> bool:
        """Whether the data must hold numbers: for bins and whole levels. A rule says so for each comparison."""
        return self.bins is not None or (self.levels is not None and not isinstance(self.levels[0], str))

    @property
    def text_sources(self) -> tuple[str, ...]:
        """Those of the `sources` that hold text, whatever a CSV file makes of them."""
        if self.cross is not None:
            return tuple(name for part in self.cross for name in part.text_sources)
        if self.rule is not None:
            return tuple(c.column for c in Rule.parse(self.rule).comparisons if isinstance(c.value, str))
        return self.sources if self.levels is not None and isinstance(self.levels[0], str) else ()


#: What may be written for each key of fixed words.
WORDS: dict[str, tuple[str, ...]] = {
    "role": (Role.FEATURE, Role.SENSITIVE, Role.TARGET),  # the joint one is no role that people write
    "missing": get_args(Handling),
    "unknown": get_args(Handling),
    "model": ("one-hot", "scaled", "drop", "binned"),
}


def _coerce(column: Column) -> None:
    """Give a column built in Python the types that one read from a file has, or refuse it.

    Text for a role, lists and whole numbers for bins would otherwise be other values, with other digests.
    """
    if not isinstance(column.name, str):
        raise SchemaError(f"column name must be text, got {type(column.name).__name__}")
    for key, words in WORDS.items():
        given = getattr(column, key)
        if given not in words and given is not Role.JOINT:
            shown = shorten(str(given)[:70])
            raise SchemaError(f"column '{_shown(column)}' must have {key} {_listed(words)}, got '{shown}'")
    sources: Any = column.source
    _set(column, "role", Role(column.role))
    try:
        if column.levels is not None:
            _set(column, "levels", tuple(_level(level) for level in _items(column, column.levels)))
        if column.bins is not None:
            _set(column, "bins", tuple(float(edge) for edge in _items(column, column.bins)))
        if column.null is not None:
            _set(column, "null", tuple(_level(code) for code in _items(column, column.null)))
        if column.scale is not None:
            centre, width = _items(column, column.scale)
            _set(column, "scale", (float(centre), float(width)))
        if column.cross is not None:
            _set(column, "cross", _parts(column))
        _set(column, "source", (sources,) if isinstance(sources, str) else _items(column, sources))
    except (TypeError, ValueError, OverflowError):
        raise SchemaError(
            f"column '{_shown(column)}' must have levels of integers or text, bins and scale of numbers, and "
            "sources of text; check their types"
        ) from None
    if not all(isinstance(name, str) for name in column.source) or not isinstance(column.rule, str | None):
        raise SchemaError(f"column '{_shown(column)}' must have text as rule and sources; check their types")


_set = msgspec.structs.force_setattr


def _items(column: Column, values: Any) -> tuple[Any, ...]:
    if isinstance(values, str):
        raise TypeError
    found = values if isinstance(values, tuple) else tuple(values)
    if len(found) > MAX_LEVELS + 1:
        # Before anything is built from them.
        raise SchemaError(
            f"column '{_shown(column)}' must have at most {MAX_LEVELS} levels, got {len(found)}; bin it"
        )
    return found


def _parts(column: Column) -> tuple[Column, ...]:
    parts = _items(column, column.cross)
    if not all(isinstance(part, Column) for part in parts):
        raise SchemaError(
            f"column '{_shown(column)}' must cross columns; give Column values, or names in a schema file"
        )
    return parts


def _level(value: Any) -> int | str:
    if isinstance(value, bool):
        raise TypeError
    return value if isinstance(value, str) else operator.index(value)


def _listed(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _shown(column: Column) -> str:
    return shorten(column.name[:70])


def check_null(null: tuple[int | str, ...], columns: Iterable[Column]) -> None:
    """Refuse codes for missing values that are too many, too long, or also a level."""
    if len(null) > MAX_RULES or any(isinstance(code, str) and len(code) > 200 for code in null):
        raise SchemaError(f"null must list at most {MAX_RULES} codes of at most 200 characters")
    codes = {str(code) for code in null}
    for column in columns:
        both = [str(level) for level in column.levels or () if str(level) in codes]
        if both:
            raise SchemaError(
                f"column '{_shown(column)}' declares '{shorten(both[0])}' as a level and as null; drop one of them, or "
                "give the column its own null = [...]"
            )


def _check(column: Column) -> None:
    name = column.name
    if not _NAME.fullmatch(name):
        raise SchemaError(
            f"column name '{shorten(name[:70])}' must start with a letter and hold letters, digits, spaces, "
            "dots, dashes (64 at most); rename it and give the data's own name as source"
        )
    # Columns of real files have odd names, an empty one and line breaks among them: only sizes are bounded.
    if len(column.source) > MAX_RULES or any(len(source) > 200 for source in column.source):
        raise SchemaError(f"column '{name}' must name at most {MAX_RULES} sources of at most 200 characters")
    kinds = [kind for kind in ("levels", "bins", "rule", "cross") if getattr(column, kind) is not None]
    if len(kinds) != 1:
        raise SchemaError(
            f"column '{name}' must declare exactly one of levels, bins, rule or cross, got {kinds or 'none'}"
        )
    if column.cross is not None:
        check_parts(name, column.cross)
        if column.source or column.has_other or column.role == Role.TARGET:
            raise SchemaError(
                f"column '{name}' is crossed: its parts name sources, missing and unknown, and it is no target; "
                "move them there"
            )
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
    check_null(column.null or (), [column])
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
    text = column.rule or column.cross is not None or (column.levels and isinstance(column.levels[0], str))
    if column.model in ("scaled", "binned") and text:
        raise SchemaError(f"column '{name}' must be numeric to be scaled; use model = \"one-hot\"")
    if column.model == "binned" and (column.role != Role.TARGET or column.bins is None):
        raise SchemaError(f"column '{name}' must be a target with bins to be binned; use another model")
    if column.model == "scaled" and column.bins is None and column.scale is None:
        raise SchemaError(f"column '{name}' must declare scale = [centre, width] to be scaled without bins")
