"""Joint: tables of each feature with groups and classes together, denoised beside the pairs they sum to.

**Pairs of groups and classes.** Every joint table also holds how groups and classes go together, summed over its
feature. `JointTables.pairs` takes the mean of all of these and of the table asked for, by precision.

**What pairs leave open.** A client's joint tables are its pairs and how the classes of a group differ at each level of
a feature. Let m be the pool's table raked to the client's pairs, y the released one less m, σ² its noise, and N an
orthonormal basis of the combinations of groups and classes that change no pair. At each level of the feature
the client deviates by N t, and with the prior t ~ N(0, τ²U), U = (Nᵀ diag(1/m) N)⁻¹,

    t = (U⁻¹/τ² + 1/σ²)⁻¹ Nᵀy/σ².

U is the variance of a sample of m records with these pairs, so τ² = 1 where clients differ by sampling alone. τ² of
each table is found by moments over all clients: E|Nᵀy|² = τ² tr U + σ² tr I, in the space of N alone, since the pairs
that make m have fitted the rest of the noise already. The pool's own table is denoised in the same way, towards one
without interaction of three. The results are raked to the pairs again, which are better known.
"""

from __future__ import annotations

from collections.abc import Sequence
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
#: Added to the pool's counts, so that a cell without any can be raked; least count that a cell is taken to have.
_FLOOR = 0.5
#: Rounds in which τ² and the weights of its moments are found.
_MOMENTS = 20


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
        """Noisy counts and scales of the pairs, those among groups and classes from all tables that hold them."""
        folding, layout = self.folding, self.folding.layout
        counts = np.asarray(folding.cells(self.counts), np.float64)
        scales = np.array(folding.scales(self.sigmas))
        for j, (x, y) in enumerate(layout.pairs):
            if x in folding.groups and y in folding.groups:
                counts[:, layout.slice(j)], scales[:, j] = self._among(
                    counts[:, layout.slice(j)], scales[:, j], folding.onto(x, y)
                )
        return counts, scales

    def _among(self, own: Floats, scale: Floats, onto: Floats) -> tuple[Floats, Floats]:
        """A pair of groups or classes and its noise: the mean by precision of its own table and all sums to it.

        Clients without noise keep their own table, which the sums equal.
        """
        folding, noisy = self.folding, scale > 0
        precision = np.divide(1.0, scale**2, out=np.ones_like(scale), where=noisy)
        top = own * precision[:, None]
        for table in folding.features.values():
            cells = self.counts[:, folding.asked.slice(table)]
            found = cells.reshape(len(cells), -1, len(onto)).sum(axis=1) @ onto
            variance = self.sigmas[:, table] ** 2 * folding.asked.shapes[table][0] * onto.sum(axis=0).max()
            here = np.divide(1.0, variance, out=np.zeros_like(variance), where=noisy & (variance > 0))
            top, precision = top + found * here[:, None], precision + here
        return top / precision[:, None], np.where(noisy, precision**-0.5, 0.0)


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
        expected = self._raked(feature, self._pool[feature], pairs)
        if client is None:
            return expected
        folding, table = self.released.folding, self.released.folding.features[feature]
        m = expected * max(float(self.totals[client]), 1.0)
        found = self.released.counts[client, folding.asked.slice(table)].reshape(m.shape)
        variance = float(self.released.sigmas[client, table] ** 2)
        return self._raked(feature, self._beyond.shrunk(found, m, variance, self._spread[feature]), pairs)

    @cached_property
    def _beyond(self) -> BeyondPairs:
        return BeyondPairs.of(self.released.folding)

    @cached_property
    def _pool(self) -> dict[int, Floats]:
        """Tables of all clients together, as counts."""
        folding = self.released.folding
        summed = np.maximum(self.released.counts.sum(axis=0), 0.0) + _FLOOR
        pairs = np.maximum(self.cells, 0.0).sum(axis=0) / max(float(self.totals.sum()), 1.0)
        found = {}
        for feature, table in folding.features.items():
            own = summed[folding.asked.slice(table)].reshape(-1, folding.levels.shape[1])
            variance = float(np.sum(self.released.sigmas[:, table] ** 2))
            m = self._raked(feature, np.ones_like(own), pairs) * own.sum()
            spread = self._beyond.spread([own], [m], np.array([variance]))
            found[feature] = self._beyond.shrunk(own, m, variance, spread)
        return found

    @cached_property
    def _spread(self) -> dict[int, float]:
        """τ² of each feature's table: what clients differ by beyond noise, in units of what samples do."""
        folding, found = self.released.folding, {}
        totals = np.maximum(self.totals, 1.0)
        shares = np.maximum(self.cells, 0.0) / totals[:, None]
        for feature, table in folding.features.items():
            expected = [
                self._raked(feature, self._pool[feature], pairs) * total
                for pairs, total in zip(shares, totals, strict=True)
            ]
            shape = expected[0].shape
            counts = [row.reshape(shape) for row in self.released.counts[:, folding.asked.slice(table)]]
            found[feature] = self._beyond.spread(counts, expected, self.released.sigmas[:, table] ** 2)
        return found

    def _raked(self, feature: int, table: Floats, pairs: Floats) -> Floats:
        """A table raked to the pairs of the feature with each column joined, and of these among themselves."""
        folding, layout = self.released.folding, self.released.folding.layout
        out = table / max(table.sum(), 1e-300)
        margins, among = [], []
        for j, (x, y) in enumerate(layout.pairs):
            goal = np.maximum(pairs[layout.slice(j)].reshape(layout.shapes[j]), 0.0)
            if x in folding.groups and y in folding.groups:
                among.append((goal.ravel(), folding.onto(x, y)))
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


@dataclass(frozen=True, eq=False)
class BeyondPairs:
    """What pairs leave open at one level of a feature.

    Parameters
    ----------
    basis
        Shape (combinations, dimensions): an orthonormal basis N of the changes that alter no pair.
    """

    basis: Floats

    @classmethod
    def of(cls, folding: Folding) -> BeyondPairs:
        """Of the columns that a folding joins."""
        margins = np.concatenate([np.eye(int(level.max()) + 1)[level] for level in folding.levels], axis=1)
        left, values, _ = np.linalg.svd(margins)
        rank = int(np.sum(values > 1e-9 * values.max()))
        return cls(np.asarray(left[:, rank:]))

    def _precision(self, m: Floats) -> Floats:
        """U⁻¹ at each level: shape (levels, dimensions, dimensions)."""
        weights = 1.0 / np.maximum(m, _FLOOR)
        return np.asarray(np.einsum("cr,xc,cs->xrs", self.basis, weights, self.basis))

    def spread(self, counts: Sequence[Floats], expected: Sequence[Floats], variance: Floats) -> float:
        """τ² by moments, each level weighted by its precision: tr U / (τ² tr U + σ² tr I)²."""
        size = self.basis.shape[1]
        if not size:
            return 0.0
        squares = np.concatenate([
            (((n - m) @ self.basis) ** 2).sum(axis=1) for n, m in zip(counts, expected, strict=True)
        ])  # fmt: skip
        units = np.concatenate([
            np.trace(np.linalg.inv(self._precision(m)), axis1=1, axis2=2) for m in expected
        ])  # fmt: skip
        noise = np.repeat(variance, [len(m) for m in expected]) * size
        found = 1.0
        for _ in range(_MOMENTS):
            weight = units / np.maximum(found * units + noise, 1e-300) ** 2
            top, bottom = float(weight @ (squares - noise)), float(weight @ units)
            found = max(0.0, top / max(bottom, 1e-300))
        return found

    def shrunk(self, counts: Floats, m: Floats, variance: float, spread: float) -> Floats:
        """Posterior mean of a table whose pairs are those of `m`. Without noise the table itself."""
        if variance == 0:
            return counts
        if spread == 0 or not self.basis.shape[1]:
            return m
        ones = np.eye(self.basis.shape[1]) / variance
        seen = (counts - m) @ self.basis / variance
        t = np.linalg.solve(self._precision(m) / spread + ones, seen[..., None])[..., 0]
        return np.maximum(m + t @ self.basis.T, _LEAST * m)


def _ratio(goal: Floats, now: Floats) -> Floats:
    return np.where(now > 0, goal / np.maximum(now, 1e-300), 0.0)
