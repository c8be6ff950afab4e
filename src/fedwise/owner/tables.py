"""Tables: the exact pairwise contingency tables of one client.

Exact counts are private. They live in `Tables`, which refuses to be printed, pickled or written;
the only way out is `fedwise.release`, which adds noise.
"""

from __future__ import annotations

import sys
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from ..errors import DataError
from ..schema.layout import Layout


class _Numpy:
    """What numpy counts in this process before the compiled way is loaded, which takes longer than all of that."""

    pairs_left = 4_000_000


class Tables:
    """Exact counts of one client: private, in memory only.

    The vector is reachable as `exact` for the release and for simulations on public data; printing,
    pickling and copying to a file are refused.
    """

    __slots__ = ("_exact", "layout")

    def __init__(self, layout: Layout, exact: npt.NDArray[np.int64]) -> None:
        self.layout = layout
        self._exact = exact

    @property
    def exact(self) -> npt.NDArray[np.int64]:
        """The flat vector of exact counts."""
        return self._exact

    def __repr__(self) -> str:
        return f"Tables({self.layout.tables} tables, {self.layout.cells} cells, exact counts withheld)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("Tables hold exact counts and are never serialised; use fedwise.release")


def count(codes: npt.NDArray[np.int16], layout: Layout) -> Tables:
    """Count all pair tables in one pass over the codes.

    Parameters
    ----------
    codes
        Shape (variables, rows), as `Schema.encode` gives them: every code below its variable's size.

    Raises
    ------
    DataError
        The codes are not of this layout. The kernel writes where codes point: it must not be asked to
        write outside the tables.
    """
    if codes.ndim != 2 or len(codes) != len(layout.sizes):
        raise DataError(
            f"codes must hold one line for each of {len(layout.sizes)} variables; use Schema.encode"
        )
    if codes.size:
        too_high = codes.max(axis=1) >= np.asarray(layout.sizes)
        if codes.dtype.kind not in "iu" or too_high.any() or codes.min() < 0:
            raise DataError("codes must lie inside their variable's domain; use Schema.encode")
    pairs = codes.shape[1] * layout.tables
    if pairs > _Numpy.pairs_left or f"{__package__}.counting" in sys.modules:
        return Tables(layout, count_many(codes, layout))
    _Numpy.pairs_left -= pairs
    return Tables(layout, count_few(codes, layout))


def count_many(codes: npt.NDArray[np.int16], layout: Layout) -> npt.NDArray[np.int64]:
    """The flat counts, in one pass over the codes."""
    from .counting import count_pairs

    exact = np.zeros(layout.cells, dtype=np.int64)
    pairs = np.asarray(layout.pairs, dtype=np.int64).reshape(-1, 2)
    sizes = np.asarray(layout.sizes, dtype=np.int64)
    count_pairs(np.ascontiguousarray(codes), pairs, sizes, layout.offsets, exact)
    return exact


def count_few(codes: npt.NDArray[np.int16], layout: Layout) -> npt.NDArray[np.int64]:
    """The same, one table at a time, without the compiler."""
    exact = np.zeros(layout.cells, dtype=np.int64)
    wide = codes.astype(np.intp)
    for j, ((x, y), (a, b)) in enumerate(zip(layout.pairs, layout.shapes, strict=True)):
        exact[layout.slice(j)] = np.bincount(wide[x] * b + wide[y], minlength=a * b)
    return exact
