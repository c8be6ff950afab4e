"""PUMS: the columns of the census person records that the tasks use, with their public domains.

Bins are those of the paper's code where it has any; levels are the codes of the PUMS data dictionary.
A domain here is as wide as the dictionary; a task narrows it to its own universe.
"""

from __future__ import annotations

import msgspec

from ..errors import SchemaError, nearest
from ..schema.schema import Column, Role


def _levels(*codes: int) -> tuple[int, ...]:
    return codes


def _span(first: int, last: int) -> tuple[int, ...]:
    return tuple(range(first, last + 1))


_DOMAINS: dict[str, dict[str, object]] = {
    "AGEP": {"bins": (0, 18, 30, 45, 65, 100), "model": "scaled", "scale": (45, 20)},
    "ANC": {"levels": _levels(1, 2, 3, 4, 8)},
    "CIT": {"levels": _span(1, 5)},
    "COW": {"levels": _span(1, 9)},
    "DEAR": {"levels": _levels(1, 2)},
    "DEYE": {"levels": _levels(1, 2)},
    "DIS": {"levels": _levels(1, 2)},
    "DREM": {"levels": _levels(1, 2)},
    "ESP": {"levels": _span(1, 8)},
    "ESR": {"levels": _span(1, 6)},
    "FER": {"levels": _levels(1, 2)},
    "GCL": {"levels": _levels(1, 2)},
    "JWMNP": {"bins": (-1, 0, 10, 20, 30, 45, 60, 90, 200), "model": "scaled", "scale": (25, 25)},
    "JWTR": {"bins": (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 13), "source": ("JWTR", "JWTRNS")},
    "MAR": {"levels": _span(1, 5)},
    "MIG": {"levels": _span(1, 3)},
    "MIL": {"levels": _span(1, 4)},
    "NATIVITY": {"levels": _levels(1, 2)},
    "OCCP": {"bins": tuple(range(0, 10_001, 1000)), "model": "drop"},
    "PINCP": {
        "bins": (-100_000, 0, 15_000, 30_000, 50_000, 75_000, 100_000, 200_000, 1_000_000),
        "model": "scaled",
        "scale": (20_000, 20_000),
    },
    "POBP": {"bins": (0, 60, 100, 200, 300, 310, 400, 500, 555), "model": "drop"},
    "POVPIP": {"bins": (0, 50, 100, 150, 200, 300, 400, 502), "model": "scaled", "scale": (300, 150)},
    "RAC1P": {"levels": _span(1, 9)},
    "RELP": {"levels": _span(0, 17)},
    "SCHL": {"bins": (0, 16, 17, 21, 22, 23, 25)},
    "SEX": {"levels": _levels(1, 2), "role": Role.SENSITIVE},
    "WKHP": {"bins": (-1, 0, 10, 20, 30, 39, 41, 50, 100), "model": "scaled", "scale": (40, 15)},
    # Coarser columns that some public extracts hold instead.
    "MAR2": {"levels": _levels(1, 2)},
    "MAR_married": {"levels": _levels(0, 1)},
    "RAC5": {"levels": _span(1, 5)},
    "white": {"levels": _levels(0, 1)},
}

#: What may stand in for a column that the data lacks, best first.
STAND_INS: dict[str, tuple[str, ...]] = {"MAR": ("MAR2", "MAR_married"), "RAC1P": ("RAC5", "white")}

#: Newer names of columns. Both hold codes of their own, see `RECODES`.
RENAMED: dict[str, str] = {"RELSHIPP": "RELP", "JWTRNS": "JWTR"}

#: Codes of the renamed columns (2019 on) in terms of the older ones (to 2018). RELSHIPP tells apart
#: spouses and partners of the same and the opposite sex, which RELP does not, and has no roomers (11).
RECODES: dict[str, dict[int, int]] = {
    "RELSHIPP": dict(zip(range(20, 39), (0, 1, 13, 1, 13, *range(2, 11), 12, 14, 15, 16, 17), strict=True)),
    # Subway (3), long-distance rail (4) and light rail (5) changed places.
    "JWTRNS": dict(zip(range(1, 13), (1, 2, 4, 5, 3, *range(6, 13)), strict=True)),
}

#: Columns whose dictionary has no code 0: a 0 there is a missing value that folktables filled in.
ZERO_IS_MISSING = frozenset(_DOMAINS) - {"AGEP", "PINCP", "POVPIP", "RELP", "MAR_married", "white"}


def column(name: str, **changes: object) -> Column:
    """The PUMS column `name`, with `changes` to any field of `Column`.

    Raises
    ------
    SchemaError
        `name` is not a PUMS column the tasks know.
    """
    if name not in _DOMAINS:
        raise SchemaError(f"PUMS column must be one the tasks use, got '{name}'{nearest(name, _DOMAINS)}")
    fields = {"role": Role.FEATURE, **_DOMAINS[name], **changes, "name": name}
    return msgspec.convert(fields, Column)


def names() -> tuple[str, ...]:
    """Every PUMS column the tasks know, in alphabetical order."""
    return tuple(sorted(_DOMAINS))
