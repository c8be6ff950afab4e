"""Crossing: one column whose levels are the combinations of the levels of others, such as sex × race.

The code of a combination is row-major: the last part changes fastest. Of no part at all there is one
combination, ``all``, so the table of a label with it is the count of each class.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..errors import SchemaError

if TYPE_CHECKING:
    from .column import Column

#: Most columns that may be crossed.
MAX_PARTS = 8


def crossed_size(parts: Sequence[Column]) -> int:
    """Number of combinations."""
    return prod(part.size for part in parts)


def crossed_labels(parts: Sequence[Column]) -> tuple[str, ...]:
    """Readable name of each combination, in code order: ``1 × 2``."""
    return (
        tuple(" × ".join(labels) for labels in product(*(part.labels for part in parts)))
        if parts
        else ("all",)
    )


def crossed_codes(
    parts: Sequence[Column], codes: Sequence[npt.NDArray[np.int16]], rows: int
) -> npt.NDArray[np.int16]:
    """Code of each row's combination from the codes of its parts, -1 where a part's code is -1."""
    found = np.zeros(rows, dtype=np.int16)
    outside = np.zeros(rows, dtype=bool)
    for part, own in zip(parts, codes, strict=True):
        found = found * np.int16(part.size) + own
        outside |= own < 0
    found[outside] = -1
    return found


def overlap(x: Column, y: Column) -> bool:
    """Whether one of two columns is made of the other, or both of a common part.

    Their table says how they were made, not how the data are associated.
    """
    if x.cross is None and y.cross is None:
        return False
    return bool(_names(x) & _names(y))


def _names(column: Column) -> set[str]:
    return {column.name} if column.cross is None else {part.name for part in column.cross}


def check_parts(name: str, parts: Sequence[Column]) -> None:
    """Refuse parts that cannot be crossed."""
    if len(parts) == 1 or len(parts) > MAX_PARTS:
        raise SchemaError(
            f"column '{name}' must cross at least 2 and at most {MAX_PARTS} columns, got {len(parts)}"
        )
    names = [part.name for part in parts]
    if len(set(names)) != len(names):
        raise SchemaError(f"column '{name}' must cross each column once, got {', '.join(names)}")
    if any(part.cross is not None for part in parts):
        raise SchemaError(
            f"column '{name}' must cross plain columns; name the parts of a crossed one instead"
        )
