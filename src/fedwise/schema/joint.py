"""Joint: one column of all sensitive attributes and the target together, which a plan may ask for with each feature.

A table of a feature X with S × T holds the tables of X with S and of X with T as sums, and how S and T go together at
each level of X besides. With the precision of both it costs no more privacy than the two of them, and for two classes
and two groups it has no more cells. `Folding` sums such tables to pairs, so that whatever reads pairs reads them.
"""

from __future__ import annotations

from functools import cached_property
from itertools import combinations
from math import prod, sqrt
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from ..errors import SchemaError
from .column import Column, Role
from .crossing import MAX_PARTS
from .layout import Layout
from .schema import Schema

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Name of the column that a plan adds.
JOINT = "groups and classes"
#: Most levels of it: each cell of a pair sums so many counts, over the levels of the pair's own.
MAX_JOINT = 64


def with_joint(schema: Schema) -> Schema:
    """The schema with the column of all sensitive attributes and the target.

    Raises
    ------
    SchemaError
        There is not one target, no sensitive attribute, or too many combinations.
    """
    if len(schema.targets) != 1 or not schema.sensitive:
        raise SchemaError(
            "joint tables need one target and at least one sensitive attribute; leave out joint (--joint)"
        )
    asked = [schema.columns[v] for v in (*schema.sensitive, schema.target)]
    parts = tuple({part.name: part for column in asked for part in column.parts}.values())
    levels = prod(part.size for part in parts)
    if levels > MAX_JOINT or len(parts) > MAX_PARTS:
        raise SchemaError(
            f"joint tables need at most {MAX_JOINT} combinations of groups and classes, got {levels}; "
            "leave out joint (--joint), or give these columns fewer levels"
        )
    column = Column(JOINT, Role.JOINT, cross=parts, model="drop")
    return msgspec.structs.replace(schema, columns=(*schema.columns, column))


def without_joint(schema: Schema) -> Schema:
    """The schema as everybody but the one who counts sees it."""
    kept = tuple(column for column in schema.columns if column.role != Role.JOINT)
    return schema if len(kept) == len(schema.columns) else msgspec.structs.replace(schema, columns=kept)


class Folding:
    """How tables with a joint column sum to pairs.

    Parameters
    ----------
    schema, asked
        Of the plan: with the joint column, and where the cells of its tables live.

    Attributes
    ----------
    plain
        The schema without that column.
    """

    def __init__(self, schema: Schema, asked: Layout) -> None:
        self.schema, self.asked = schema, asked
        self.plain = without_joint(schema)
        self.joint = len(schema.columns) - 1
        """Position of the joint column, the last one."""
        self.groups = (*self.plain.sensitive, self.plain.target)
        """Positions of the columns it joins."""

    @cached_property
    def features(self) -> dict[int, int]:
        """Table with the joint column of each feature that has one."""
        return {x: j for j, (x, y) in enumerate(self.asked.pairs) if y == self.joint}

    @cached_property
    def levels(self) -> Ints:
        """Shape (columns joined, levels of the joint column): the level of each at every combination."""
        parts = self.schema.columns[self.joint].parts
        names = [part.name for part in parts]
        codes = np.unravel_index(np.arange(prod(part.size for part in parts)), [part.size for part in parts])
        found = []
        for variable in self.groups:
            own = self.plain.columns[variable].parts
            at = tuple(codes[names.index(part.name)] for part in own)
            found.append(np.ravel_multi_index(at, [part.size for part in own]))
        return np.array(found, np.int64)

    def onto(self, x: int, y: int) -> Floats:
        """Which cell of the pair of two of the columns joined each combination belongs to: ones and zeros."""
        first, second = (self.levels[self.groups.index(v)] for v in (x, y))
        columns = self.plain.sizes[y]
        return np.asarray(np.eye(self.plain.sizes[x] * columns)[first * columns + second])

    @cached_property
    def layout(self) -> Layout:
        """Where the cells of the pairs live, in the order in which a plan of pairs asks for them."""
        kept = {pair for pair in self.asked.pairs if self.joint not in pair}
        kept |= {(min(x, y), max(x, y)) for x in self.features for y in self.groups}
        every = combinations(range(len(self.plain.columns)), 2)
        return Layout(self.plain.names, self.plain.sizes, tuple(pair for pair in every if pair in kept))

    @cached_property
    def _sources(self) -> list[tuple[int, int | None]]:
        """For each pair: the table it is read from, and which of the columns joined it keeps; none if it was asked."""
        known = {pair: j for j, pair in enumerate(self.asked.pairs)}
        found: list[tuple[int, int | None]] = []
        for x, y in self.layout.pairs:
            if (x, y) in known:
                found.append((known[x, y], None))
            else:
                feature, group = (x, y) if x in self.features else (y, x)
                found.append((self.features[feature], self.groups.index(group)))
        return found

    def cells(self, counts: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Counts of the tables asked, shape (…, cells), as counts of pairs."""
        out = np.zeros((*counts.shape[:-1], self.layout.cells), counts.dtype)
        for j, (table, group) in enumerate(self._sources):
            found = counts[..., self.asked.slice(table)]
            if group is not None:
                level = self.levels[group]
                found = found.reshape(*counts.shape[:-1], -1, len(level))
                found = found @ np.eye(int(level.max()) + 1, dtype=counts.dtype)[level]
                if self.layout.pairs[j][0] not in self.features:
                    found = found.swapaxes(-1, -2)  # the feature's levels are the columns of the pair
                found = found.reshape(*counts.shape[:-1], -1)
            out[..., self.layout.slice(j)] = found
        return out

    def scales(self, sigmas: npt.ArrayLike) -> Floats:
        """Noise scales of the tables asked, shape (…, tables), as those of the pairs: √m σ for sums of m counts."""
        given = np.asarray(sigmas, dtype=np.float64)
        counts = [self.asked.shapes[table] for table, _ in self._sources]
        return np.stack(
            [
                given[..., table] * sqrt(prod(whole) / prod(shape))
                for (table, _), whole, shape in zip(self._sources, counts, self.layout.shapes, strict=True)
            ],
            axis=-1,
        )


def joined(schema: Schema, layout: Layout, shares: Floats) -> tuple[Layout, Floats]:
    """The tables to ask for in place of those of `layout`, and the share of the precision that each gets.

    Parameters
    ----------
    schema
        With a joint column.
    layout, shares
        The pairs that would be asked otherwise, and their shares: a joint table gets the sum of those it replaces.
    """
    joint, groups = len(schema.columns) - 1, {*schema.sensitive, *schema.targets}
    replaced: dict[int, list[int]] = {}
    for j, (x, y) in enumerate(layout.pairs):
        features = [v for v in (x, y) if v not in groups]
        if len(features) == 1:
            replaced.setdefault(features[0], []).append(j)
    gone = {j for tables in replaced.values() for j in tables}
    kept = [j for j in range(layout.tables) if j not in gone]
    pairs = (*(layout.pairs[j] for j in kept), *((x, joint) for x in sorted(replaced)))
    parts = [shares[j] for j in kept] + [shares[replaced[x]].sum() for x in sorted(replaced)]
    return Layout(schema.names, schema.sizes, pairs), np.array(parts)
