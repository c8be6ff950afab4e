"""Layout: where each cell of each pair table, and each marginal, lives in a flat vector."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from .schema import Schema


class Layout:
    """Where each cell of each pair table lives in one flat vector, and each level of each variable in another.

    Parameters
    ----------
    names, sizes
        The variables and their number of levels.
    pairs
        Positions ``(x, y)`` of the variables of each table, in order. Table ``j`` holds
        ``sizes[x] * sizes[y]`` cells, row-major, from ``offsets[j]``. Marginals are one vector of their own:
        all levels of the first variable, then of the second, and so on.
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

    @cached_property
    def marginal_offsets(self) -> npt.NDArray[np.int64]:
        """First level of each variable among the marginals, and the number of levels last: shape (variables + 1,)."""
        return np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)

    @property
    def levels(self) -> int:
        """Total number of levels: the width of all marginals."""
        return int(self.marginal_offsets[-1])

    def marginal(self, variable: int) -> slice:
        """Where the levels of a variable live among the marginals."""
        return slice(int(self.marginal_offsets[variable]), int(self.marginal_offsets[variable + 1]))

    def sides(self, table: int) -> tuple[slice, slice]:
        """Where the marginals of a table's rows and columns live."""
        x, y = self.pairs[table]
        return self.marginal(x), self.marginal(y)

    def slice(self, table: int) -> slice:
        """Where table number `table` lives in the flat vector."""
        return slice(int(self.offsets[table]), int(self.offsets[table + 1]))

    def view(self, flat: npt.NDArray[np.generic], table: int) -> npt.NDArray[np.generic]:
        """Table number `table` of a flat vector (or of a stack of them) as a matrix."""
        return flat[..., self.slice(table)].reshape(*flat.shape[:-1], *self.shapes[table])

    def per_cell(self, per_table: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """A number for each table (last axis), repeated over its cells."""
        return np.repeat(np.asarray(per_table, dtype=np.float64), np.diff(self.offsets), axis=-1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and (self.names, self.sizes, self.pairs) == (
            other.names,
            other.sizes,
            other.pairs,
        )

    def __hash__(self) -> int:
        return hash((self.names, self.sizes, self.pairs))
