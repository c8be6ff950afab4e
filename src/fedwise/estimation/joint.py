"""Joint: tables of each feature with groups and classes together, denoised beside the pairs they sum to.

A client's joint tables are its pairs and what the pairs leave open: how the classes of a group differ at each level of
a feature. That part is much alike everywhere, so it is shrunk to the pool's: the pool's tables, raked to the client's
pairs, are the expectation, and a cell keeps

    w = τ²m / (τ²m + σ²)

of its deviation from the expected count m, with τ² of each table by moments over all clients. The result is raked to
the client's pairs again, which are better known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..schema.joint import Folding

Floats = npt.NDArray[np.float64]

#: Rounds of raking; three sets of margins agree to a thousandth long before.
_ROUNDS = 20
#: Least part of its expectation that a cell keeps: a level that is rare must not vanish by noise.
_LEAST = 0.02
#: Added to the pool's counts, so that a cell without any can be raked.
_FLOOR = 0.5


@dataclass(frozen=True, eq=False)
class JointTables:
    """Released tables before they were summed to pairs.

    Parameters
    ----------
    folding
        How they sum.
    counts
        Shape (clients, cells): noisy counts of all tables asked.
    sigmas
        Shape (clients, tables): their noise scales.
    """

    folding: Folding
    counts: Floats
    sigmas: Floats

    def of(self, rows: npt.ArrayLike) -> JointTables:
        """Those of some clients."""
        places = np.asarray(rows)
        return replace(self, counts=self.counts[places], sigmas=self.sigmas[places])

    def split(self, rng: np.random.Generator) -> tuple[JointTables, JointTables]:
        """Two of independent noise: see `fedwise.estimation.fission`."""
        noise = rng.standard_normal(self.counts.shape) * self.folding.asked.per_cell(self.sigmas)
        sigmas = self.sigmas * np.sqrt(2.0)
        return (
            replace(self, counts=self.counts + noise, sigmas=sigmas),
            replace(self, counts=self.counts - noise, sigmas=sigmas),
        )

    @property
    def pairs(self) -> tuple[Floats, Floats]:
        """Noisy counts and scales of the pairs."""
        return np.asarray(self.folding.cells(self.counts), np.float64), self.folding.scales(self.sigmas)


@dataclass(frozen=True, eq=False)
class JointEstimates:
    """Denoised joint tables of clients whose pairs are estimated.

    Parameters
    ----------
    released
        The noisy ones.
    cells
        Shape (clients, cells): estimated counts of the pairs, in the layout of the folding.
    totals
        Shape (clients,): estimated numbers of records.
    """

    released: JointTables
    cells: Floats
    totals: Floats

    def shares(self, feature: int, pairs: Floats, client: int | None) -> Floats:
        """Table of a feature with the joint column, as shares: shape (levels, combinations).

        Parameters
        ----------
        pairs
            Shape (cells of pairs,): the pair tables it must agree with, as shares.
        client
            Position of the client; ``None`` for the pool.
        """
        folding = self.released.folding
        expected = self._raked(feature, self._pool[feature], pairs)
        if client is None:
            return expected
        table = folding.features[feature]
        total = max(float(self.totals[client]), 1.0)
        m = expected * total
        found = self.released.counts[client, folding.asked.slice(table)].reshape(m.shape)
        kept = self._spread[feature] * m
        weight = kept / np.maximum(kept + self.released.sigmas[client, table] ** 2, 1e-300)
        return self._raked(feature, np.maximum(m + weight * (found - m), _LEAST * m), pairs)

    @cached_property
    def _pool(self) -> dict[int, Floats]:
        """Tables of all clients together."""
        folding = self.released.folding
        summed = np.maximum(self.released.counts.sum(axis=0), 0.0) + _FLOOR
        return {
            x: summed[folding.asked.slice(j)].reshape(-1, folding.levels.shape[1])
            for x, j in folding.features.items()
        }

    @cached_property
    def _spread(self) -> dict[int, float]:
        """τ² of each feature's table: what clients differ by beyond noise, in units of the expected count."""
        folding, found = self.released.folding, {}
        for feature, table in folding.features.items():
            beyond = expected = 0.0
            for client, total in enumerate(np.maximum(self.totals, 1.0)):
                pairs = np.maximum(self.cells[client], 0.0) / total
                m = self._raked(feature, self._pool[feature], pairs) * total
                off = self.released.counts[client, folding.asked.slice(table)].reshape(m.shape) - m
                beyond += float((off**2).sum() - self.released.sigmas[client, table] ** 2 * off.size)
                expected += float(m.sum())
            found[feature] = max(0.0, beyond / max(expected, 1e-300))
        return found

    def _raked(self, feature: int, table: Floats, pairs: Floats) -> Floats:
        """A table raked to the pairs of the feature with each column joined, and of these among themselves."""
        folding, layout = self.released.folding, self.released.folding.layout
        out = table / max(table.sum(), 1e-300)
        margins, among = [], []
        for j, (x, y) in enumerate(layout.pairs):
            goal = np.maximum(pairs[layout.slice(j)].reshape(layout.shapes[j]), 0.0)
            if x in folding.groups and y in folding.groups:
                cell = self._level(x) * layout.shapes[j][1] + self._level(y)
                among.append((goal.ravel(), np.eye(goal.size)[cell]))
            elif feature in (x, y) and {x, y} & {*folding.groups}:
                goal, group = (goal, y) if x == feature else (goal.T, x)
                margins.append((goal, np.eye(goal.shape[1])[self._level(group)]))
        for _ in range(_ROUNDS):
            for goal, onto in margins:
                out = out * (_ratio(goal, out @ onto) @ onto.T)
            for goal, onto in among:
                out = out * (_ratio(goal, out.sum(axis=0) @ onto) @ onto.T)
        return np.asarray(out / max(out.sum(), 1e-300))

    def _level(self, group: int) -> npt.NDArray[np.int64]:
        """Level of one of the columns joined at every combination."""
        folding = self.released.folding
        level: npt.NDArray[np.int64] = folding.levels[folding.groups.index(group)]
        return level


def _ratio(goal: Floats, now: Floats) -> Floats:
    return np.where(now > 0, goal / np.maximum(now, 1e-300), 0.0)
