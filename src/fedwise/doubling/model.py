"""Model: records whose pairs are given and that have no structure beyond them (a log-linear model of pairs).

    P(record) ∝ Π_{x<y} f_xy(code_x, code_y)

Of all distributions with given pair tables it is the one of largest entropy. Its factors cannot be solved for, as
the domain has far too many cells; they are learnt as its samples are drawn (stochastic approximation): records move
by Gibbs sampling, and after each part of them the factors take a step towards the tables wanted. Derivation and
limits: docs/theory/doubles.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..errors import FedwiseError
from ..objective.tree import Branch, strongest_tree
from ..schema.layout import Layout
from . import kernels

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Records = npt.NDArray[np.int16]

#: Parts of the records after which the factors move, in each sweep.
_PARTS = 16
#: First step; later ones fall as 1 / (1 + sweep / _SLOW).
_STEP = 0.03
_SLOW = 8.0
#: Shares are taken for at least this many records in a part, so that empty cells do not swing.
_LEAST = 0.1
#: Keeps a logarithm finite where a table has an empty cell.
_FLOOR = 1e-6


@dataclass(frozen=True, eq=False)
class Grid:
    """Where factors and cells of a layout's tables live, in the order the kernels want."""

    layout: Layout

    @cached_property
    def sizes(self) -> Ints:
        """Levels of each variable."""
        return np.array(self.layout.sizes, np.int64)

    @cached_property
    def pairs(self) -> Ints:
        """Variables of each table, shape (tables, 2)."""
        return np.array(self.layout.pairs, np.int64).reshape(-1, 2)

    @cached_property
    def offsets(self) -> Ints:
        """First cell of each table."""
        return np.ascontiguousarray(self.layout.offsets[:-1])

    @cached_property
    def place(self) -> Ints:
        """First factor of each variable given each other one, -1 where there is no table."""
        place = np.full((len(self.sizes), len(self.sizes)), -1, np.int64)
        for j, (x, y) in enumerate(self.layout.pairs):
            place[y, x] = self.layout.offsets[j]
            place[x, y] = self.layout.offsets[j] + self.layout.cells
        return place

    @cached_property
    def steps(self) -> Ints:
        """First cell of the table of two variables, and how far apart levels of either lie: (v, u, 3)."""
        steps = np.zeros((len(self.sizes), len(self.sizes), 3), np.int64)
        for j, (x, y) in enumerate(self.layout.pairs):
            steps[x, y] = self.layout.offsets[j], self.sizes[y], 1
            steps[y, x] = self.layout.offsets[j], 1, self.sizes[y]
        return steps


@dataclass(frozen=True, eq=False)
class Model:
    """A fitted model, with records drawn from it.

    Parameters
    ----------
    grid
        Where the factors live.
    factors
        Shape (2 · cells,): each table's factors by its rows, then all tables' by their columns.
    rows
        Shape (records, variables): records of the model, where its sampling stands.
    """

    grid: Grid
    factors: Floats
    rows: Records

    @classmethod
    def fit(cls, grid: Grid, shares: Floats, *, records: int, sweeps: int, seed: int) -> Model:
        """The model of pair tables, each given as shares of the records, shape (cells,)."""
        factors, order = _tree(grid, shares)
        rng = np.random.default_rng(seed)
        rows = _draw_tree(grid, order, records, rng)
        made = cls(grid, factors, rows)
        made._learn(shares, sweeps, _state(rng))
        return made

    def moved(self, shares: Floats, *, records: int, sweeps: int, seed: int, base: Floats) -> Model:
        """This model moved to other tables, from its own records: clients differ little from their pool.

        Parameters
        ----------
        base
            The tables this model was fitted to.
        """
        rng = np.random.default_rng(seed)
        ratio = np.clip((shares + _FLOOR) / (base + _FLOOR), 1 / 20, 20.0) ** 0.5
        twice = np.concatenate(
            [ratio, np.concatenate([self._turned(ratio, j) for j in range(self.grid.layout.tables)])]
        )
        rows = self.rows[rng.integers(len(self.rows), size=records)]
        made = Model(self.grid, self.factors * twice, rows)
        made._learn(shares, sweeps, _state(rng))
        return made

    def _turned(self, cells: Floats, table: int) -> Floats:
        return cells[self.grid.layout.slice(table)].reshape(self.grid.layout.shapes[table]).T.ravel()

    def _learn(self, shares: Floats, sweeps: int, state: npt.NDArray[np.uint64]) -> None:
        grid, rows = self.grid, self.rows
        expected = np.empty_like(self.factors)
        logs, kept = np.zeros_like(self.factors), 0
        for number in range(sweeps):
            step = _STEP / (1.0 + number / _SLOW)
            for part in np.array_split(np.arange(len(rows)), min(_PARTS, len(rows))):
                here = rows[part[0] : part[-1] + 1]
                kernels.expect(here, self.factors, grid.place, grid.sizes, state, expected)
                kernels.adjust(
                    self.factors, expected, shares, grid.pairs, grid.offsets, grid.place, grid.sizes, len(here), step,
                    _LEAST / len(here),
                )  # fmt: skip
            if number >= sweeps * 2 // 3:
                logs += np.log(self.factors)
                kept += 1
        if kept:
            # The mean of the last steps is nearer to the answer than any one of them.
            self.factors[:] = np.exp(logs / kept)

    def sample(self, records: int, *, sweeps: int, seed: int) -> Records:
        """Fresh records of the model."""
        rng = np.random.default_rng(seed)
        rows = self.rows[rng.integers(len(self.rows), size=records)]
        kernels.sweep(rows, self.factors, self.grid.place, self.grid.sizes, sweeps, _state(rng))
        return rows

    def refined(self, rows: Records, goal: Floats, *, sweeps: int, seed: int) -> Records:
        """These records, changed until their pair counts are `goal`, shape (cells,)."""
        grid, rows = self.grid, rows.copy()
        counts = np.empty(grid.layout.cells)
        kernels.tally(rows, grid.pairs, grid.offsets, grid.sizes, counts)
        kernels.refine(
            rows, counts, goal, self.factors, grid.place, grid.sizes, grid.steps, sweeps,
            _state(np.random.default_rng(seed)),
        )  # fmt: skip
        return rows

    def chances(self, rows: Records, variable: int) -> Floats:
        """Chance of each level of a variable given the rest of each record: shape (records, levels)."""
        out = np.empty((len(rows), int(self.grid.sizes[variable])))
        kernels.chances(rows, variable, self.factors, self.grid.place, self.grid.sizes, out)
        return out


def shares_of(layout: Layout, cells: Floats) -> Floats:
    """Counts as shares of each table; a table without any record is even."""
    out = np.maximum(cells, 0.0)
    for j in range(layout.tables):
        here = layout.slice(j)
        total = out[here].sum()
        out[here] = out[here] / total if total > 0 else 1.0 / (here.stop - here.start)
    return out


def _state(rng: np.random.Generator) -> npt.NDArray[np.uint64]:
    return rng.integers(1, 2**63, size=1, dtype=np.uint64)


def _tree(grid: Grid, shares: Floats) -> tuple[Floats, Sequence[Branch]]:
    """Factors of the tree of strongest pairs, from which learning starts, and the tree in drawing order."""
    layout = grid.layout
    factors = np.ones(2 * layout.cells)
    degree = np.zeros(len(layout.sizes), np.int64)
    for x, y in layout.pairs:
        degree[[x, y]] += 1
    if not degree.all():
        lone = layout.names[int(np.flatnonzero(degree == 0)[0])]
        raise FedwiseError(
            f"doubles need a table with every variable, got none with '{lone}'; ask for more pairs"
        )
    for (x, y), table in zip(layout.pairs, _tables(layout, shares), strict=True):
        # Each variable's own shares, spread over the tables it is in.
        rows, columns = table.sum(axis=1) + _FLOOR, table.sum(axis=0) + _FLOOR
        given_x, given_y = int(grid.place[y, x]), int(grid.place[x, y])
        factors[given_x : given_x + table.size] = np.tile(columns ** (1 / degree[y]), table.shape[0])
        factors[given_y : given_y + table.size] = np.tile(rows ** (1 / degree[x]), table.shape[1])
    order = strongest_tree(layout, shares)
    for child, parent, table in order:
        if parent is None:
            continue
        lift = (table + _FLOOR) / np.outer(table.sum(axis=1) + _FLOOR, table.sum(axis=0) + _FLOOR)
        down, up = int(grid.place[child, parent]), int(grid.place[parent, child])
        factors[down : down + table.size] *= lift.ravel()
        factors[up : up + table.size] *= lift.T.ravel()
    return np.clip(factors, 1e-6, 1e6), order


def _tables(layout: Layout, shares: Floats) -> list[Floats]:
    return [shares[layout.slice(j)].reshape(layout.shapes[j]) for j in range(layout.tables)]


def _draw_tree(grid: Grid, order: Sequence[Branch], records: int, rng: np.random.Generator) -> Records:
    """Records of the tree: a start that has the strongest pairs already."""
    rows = np.zeros((records, len(grid.sizes)), np.int16)
    for child, parent, table in order:
        if parent is None:
            rows[:, child] = _levels(table.sum(axis=0), records, rng)
            continue
        for level in range(len(table)):
            at = np.flatnonzero(rows[:, parent] == level)
            rows[at, child] = _levels(table[level], len(at), rng)
    return rows


def _levels(weights: Floats, records: int, rng: np.random.Generator) -> Ints:
    total = weights.sum()
    p = weights / total if total > 0 else np.full(len(weights), 1.0 / len(weights))
    return rng.choice(len(p), size=records, p=p)
