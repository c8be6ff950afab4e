"""Makeup: what is known of a federation before it is rehearsed, as features of a regression.

- Every client's part in it, ½ (1/k + n_i / n_W): half by heads, half by records as averaging weighs them.
- For two classes its label rate, how far the rate of each group lies from it, and their squares and products: where
  labels are rare few scores pass ½, and a gap between groups of the labels becomes one of decisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..estimation.estimates import Estimates

Members = tuple[int, ...]
Floats = npt.NDArray[np.float64]


class Clients(NamedTuple):
    """Estimated records of clients, and for each sensitive attribute those by group and class.

    Shapes (clients,), and (clients, groups, 2); none of the latter where the target is not of two classes.
    """

    records: Floats
    labels: tuple[Floats, ...] = ()

    @classmethod
    def of(cls, estimates: Estimates) -> Clients:
        """The clients of a pool."""
        layout, target, found = estimates.layout, estimates.schema.target, []
        for j, pair in enumerate(layout.pairs):
            if target in pair and {*pair} & {*estimates.schema.sensitive}:
                table = estimates.cells[:, layout.slice(j)].reshape(-1, *layout.shapes[j])
                found.append(table if pair[1] == target else table.transpose(0, 2, 1))
        return cls(estimates.totals, tuple(table for table in found if table.shape[2] == 2))


class _Kind(NamedTuple):
    """One kind of feature over the federations it was learnt from: its mean, and a root of its squares' mean sum."""

    mean: Floats
    size: float

    @classmethod
    def of(cls, values: Floats) -> _Kind:
        return cls(values.mean(axis=0), float(values.var(axis=0).sum()) ** 0.5 or 1.0)

    def scaled(self, values: Floats) -> Floats:
        return np.asarray((values - self.mean) / self.size)


class Makeup:
    """Features of federations, each kind centred and of squares that sum to one in the mean over some of them.

    Parameters
    ----------
    clients
        What is known of them.
    federations
        Those that features are scaled by.
    """

    def __init__(self, clients: Clients, federations: Sequence[Members]) -> None:
        records = np.maximum(np.asarray(clients.records, dtype=np.float64), 1.0)
        self._count = len(records)
        self._groups = [table.shape[1] for table in clients.labels]
        tables = [table.reshape(self._count, -1) for table in clients.labels]
        #: What is summed over a federation: who is in, their records by client, all records, and by group and class.
        self.rows: Floats = np.concatenate(
            [np.eye(self._count), np.diag(records), records[:, None], *tables], axis=1, dtype=np.float64
        )
        sums = self.sums(federations)
        rates = self._rates(sums)
        self._rate_mean, spread = rates.mean(axis=0), rates.std(axis=0)
        self._rate_spread = np.where(spread > 0, spread, 1.0)
        self._kinds = [_Kind.of(kind) for kind in self._unscaled(sums)]

    def sums(self, federations: Sequence[Members]) -> Floats:
        """Summed rows of federations."""
        return np.stack([self.rows[list(members)].sum(axis=0) for members in federations])

    def features(self, sums: Floats) -> Floats:
        """Shape (federations, features)."""
        pairs = zip(self._kinds, self._unscaled(sums), strict=True)
        return np.concatenate([kind.scaled(values) for kind, values in pairs], axis=1)

    def _unscaled(self, sums: Floats) -> list[Floats]:
        parts = self._parts(sums)
        if not self._groups:
            return [parts]
        rates = (self._rates(sums) - self._rate_mean) / self._rate_spread
        return [parts, np.concatenate([rates, rates**2, rates[:, :1] * rates[:, 1:]], axis=1)]

    def _parts(self, sums: Floats) -> Floats:
        """Every client's part in federations."""
        heads, records = sums[:, : self._count], sums[:, self._count : 2 * self._count]
        size, total = heads.sum(axis=1, keepdims=True), records.sum(axis=1, keepdims=True)
        return np.asarray((heads / np.maximum(size, 1.0) + records / np.maximum(total, 1.0)) / 2)

    def _rates(self, sums: Floats) -> Floats:
        """Label rates of federations, and by how much those of all groups but the first of each attribute differ."""
        found, at = [np.zeros((len(sums), 0))], 2 * self._count + 1
        for number, groups in enumerate(self._groups):
            table = sums[:, at : at + 2 * groups].reshape(-1, groups, 2)
            at += 2 * groups
            rate = table[:, :, 1].sum(axis=1) / np.maximum(table.sum(axis=(1, 2)), 1.0)
            of_groups = table[:, 1:, 1] / np.maximum(table[:, 1:].sum(axis=2), 1.0)
            found += [rate[:, None]] if number == 0 else []
            found.append(of_groups - rate[:, None])
        return np.concatenate(found, axis=1)
