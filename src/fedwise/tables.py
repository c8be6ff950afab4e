"""Tables: the exact pairwise contingency tables of one client, and the layout of their cells.

Exact counts are private. They live in `Tables`, which refuses to be printed, pickled or written;
the only way out is `fedwise.release`, which adds noise.
"""

from __future__ import annotations

from functools import cached_property
from typing import NoReturn

import numba
import numpy as np
import numpy.typing as npt

from .errors import DataError
from .schema import Schema


class Layout:
    """Where each cell of each pair table lives in one flat vector.

    Parameters
    ----------
    names, sizes
        The variables and their number of levels.
    pairs
        Positions ``(x, y)`` of the variables of each table, in order. Table ``j`` holds
        ``sizes[x] * sizes[y]`` cells, row-major, from ``offsets[j]``.
    """

    def __init__(
        self, names: tuple[str, ...], sizes: tuple[int, ...], pairs: tuple[tuple[int, int], ...]
    ) -> None:
        self.names = names
        self.sizes = sizes
        self.pairs = pairs

    @classmethod
    def of(cls, schema: Schema, pairs: tuple[tuple[str, str], ...]) -> Layout:
        """Layout of the named pairs of a schema."""
        at = {name: i for i, name in enumerate(schema.names)}
        return cls(schema.names, schema.sizes, tuple((at[x], at[y]) for x, y in pairs))

    @cached_property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Rows and columns of each table."""
        return tuple((self.sizes[x], self.sizes[y]) for x, y in self.pairs)

    @cached_property
    def offsets(self) -> npt.NDArray[np.int64]:
        """First cell of each table, and the total number of cells last: shape (tables + 1,)."""
        return np.concatenate([[0], np.cumsum([a * b for a, b in self.shapes])]).astype(np.int64)

    @property
    def cells(self) -> int:
        """Total number of cells."""
        return int(self.offsets[-1])

    @property
    def tables(self) -> int:
        """Number of tables."""
        return len(self.pairs)

    def slice(self, table: int) -> slice:
        """Where table number `table` lives in the flat vector."""
        return slice(int(self.offsets[table]), int(self.offsets[table + 1]))

    def view(self, flat: npt.NDArray[np.generic], table: int) -> npt.NDArray[np.generic]:
        """Table number `table` of a flat vector (or of a stack of them) as a matrix."""
        return flat[..., self.slice(table)].reshape(*flat.shape[:-1], *self.shapes[table])

    def per_cell(self, per_table: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Repeat one number a table over its cells."""
        return np.repeat(np.asarray(per_table, dtype=np.float64), np.diff(self.offsets))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and (self.names, self.sizes, self.pairs) == (
            other.names,
            other.sizes,
            other.pairs,
        )

    def __hash__(self) -> int:
        return hash((self.names, self.sizes, self.pairs))


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
    exact = np.zeros(layout.cells, dtype=np.int64)
    pairs = np.asarray(layout.pairs, dtype=np.int64).reshape(-1, 2)
    sizes = np.asarray(layout.sizes, dtype=np.int64)
    _count(np.ascontiguousarray(codes), pairs, sizes, layout.offsets, exact)
    return Tables(layout, exact)


@numba.njit(cache=True, nogil=True)
def _count(
    codes: npt.NDArray[np.int16],
    pairs: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    offsets: npt.NDArray[np.int64],
    out: npt.NDArray[np.int64],
) -> None:
    # Rows in blocks: the codes of a block stay in the first cache while every pair is counted over them.
    rows = codes.shape[1]
    block = 2048
    for start in range(0, rows, block):
        stop = min(start + block, rows)
        for j in range(pairs.shape[0]):
            x = codes[pairs[j, 0], start:stop]
            y = codes[pairs[j, 1], start:stop]
            width = sizes[pairs[j, 1]]
            table = out[offsets[j] : offsets[j + 1]]
            for r in range(stop - start):
                table[x[r] * width + y[r]] += 1
