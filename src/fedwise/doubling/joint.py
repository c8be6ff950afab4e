"""Joint: the log-linear model of pairs in which groups and classes are one variable.

Where a plan asks for features with sensitive attributes and target jointly, their tables say how the classes of each
group go with a feature: structure of three variables and more. Taken for one variable, groups and classes have it in
pairs again, so the same model holds it. Records go in and come out in the codes of the schema.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
import numpy.typing as npt

from ..estimation.estimates import Estimates
from ..estimation.joint import JointEstimates
from ..schema.joint import Folding
from ..schema.layout import Layout
from .model import Grid, Model

Floats = npt.NDArray[np.float64]
Records = npt.NDArray[np.int16]


@dataclass(frozen=True, eq=False)
class Space:
    """The variables of the model: all columns that are not joined, and the joint one last."""

    folding: Folding

    @cached_property
    def apart(self) -> list[int]:
        """Positions of the columns that stay as they are."""
        return [v for v in range(len(self.folding.plain.columns)) if v not in self.folding.groups]

    @cached_property
    def layout(self) -> Layout:
        """Where the cells of the model's tables live."""
        schema = self.folding.schema
        kept = [*self.apart, self.folding.joint]
        at = {v: i for i, v in enumerate(kept)}
        pairs = [p for p in self.folding.layout.pairs if p[0] in at and p[1] in at]
        pairs += [(x, self.folding.joint) for x in self.folding.features]
        every = {(at[x], at[y]) for x, y in pairs}
        order = tuple(pair for pair in combinations(range(len(kept)), 2) if pair in every)
        return Layout(tuple(schema.names[v] for v in kept), tuple(schema.sizes[v] for v in kept), order)

    @cached_property
    def _combination(self) -> npt.NDArray[np.int64]:
        """The combination of every set of levels of the columns joined; 0 where no combination gives them."""
        sizes = [self.folding.plain.sizes[v] for v in self.folding.groups]
        found = np.zeros(sizes, np.int64)
        found[tuple(self.folding.levels)] = np.arange(self.folding.levels.shape[1])
        return found

    def joined(self, rows: Records) -> Records:
        """Records of the schema as records of the model."""
        last = self._combination[tuple(rows[:, v].astype(np.int64) for v in self.folding.groups)]
        return np.ascontiguousarray(np.column_stack([rows[:, self.apart], last]), dtype=np.int16)

    def parted(self, rows: Records) -> Records:
        """Records of the model as records of the schema."""
        out = np.empty((len(rows), len(self.folding.plain.columns)), np.int16)
        out[:, self.apart] = rows[:, :-1]
        for place, variable in enumerate(self.folding.groups):
            out[:, variable] = self.folding.levels[place][rows[:, -1]]
        return out


@dataclass(frozen=True, eq=False)
class JointModel:
    """A `fedwise.doubling.model.Model` whose records are those of the schema."""

    space: Space
    model: Model

    @classmethod
    def fit(cls, space: Space, shares: Floats, *, records: int, sweeps: int, seed: int) -> JointModel:
        """The model of tables in the layout of the space, given as shares."""
        return cls(space, Model.fit(Grid(space.layout), shares, records=records, sweeps=sweeps, seed=seed))

    def moved(self, shares: Floats, *, records: int, sweeps: int, seed: int, base: Floats) -> JointModel:
        """This model moved to other tables; see `Model.moved`."""
        moved = self.model.moved(shares, records=records, sweeps=sweeps, seed=seed, base=base)
        return JointModel(self.space, moved)

    def sample(self, records: int, *, sweeps: int, seed: int) -> Records:
        """Fresh records of the model."""
        return self.space.parted(self.model.sample(records, sweeps=sweeps, seed=seed))

    def refined(self, rows: Records, goal: Floats, *, sweeps: int, seed: int) -> Records:
        """These records, changed until their tables are `goal`."""
        return self.space.parted(self.model.refined(self.space.joined(rows), goal, sweeps=sweeps, seed=seed))

    def chances(self, rows: Records, variable: int) -> Floats:
        """Chance of each level of a column that is joined, given the rest of each record: shape (records, levels)."""
        folding = self.space.folding
        at = folding.groups.index(variable)
        of_all = self.model.chances(self.space.joined(rows), len(self.space.layout.sizes) - 1)
        fits = np.ones(of_all.shape, dtype=bool)
        for place, group in enumerate(folding.groups):
            if place != at:
                fits &= folding.levels[place] == rows[:, group, None]
        found = (of_all * fits) @ np.eye(folding.plain.sizes[variable])[folding.levels[at]]
        return np.asarray(found / np.maximum(found.sum(axis=1, keepdims=True), 1e-300))


class JointShares:
    """Tables of the model's layout as shares, from estimates of pairs and joint tables."""

    def __init__(self, space: Space, estimates: Estimates) -> None:
        assert estimates.joint is not None
        self.space, self.layout = space, estimates.layout
        self.joint = JointEstimates(estimates.joint, estimates.cells, estimates.totals)

    def of(self, pairs: Floats, client: int | None) -> Floats:
        """Shares of a client, or with ``None`` of the pool, whose pair tables are these shares."""
        space, folding = self.space, self.space.folding
        at = {pair: j for j, pair in enumerate(self.layout.pairs)}
        names = [*space.apart, folding.joint]
        out = np.empty(space.layout.cells)
        for j, (x, y) in enumerate(space.layout.pairs):
            first, second = names[x], names[y]
            out[space.layout.slice(j)] = (
                self.joint.shares(first, pairs, client).ravel()
                if second == folding.joint
                else pairs[self.layout.slice(at[first, second])]
            )
        return out
