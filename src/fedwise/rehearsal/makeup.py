"""Makeup: what is known of a federation before it is rehearsed, as features of a regression.

- Every client's part in it, ½ (1/k + n_i / n_W): half by heads, half by records as averaging weighs them.
- For two classes its label rate, how far the rate of each group lies from it, and their squares and products: where
  labels are rare few scores pass ½, and a gap between groups of the labels becomes one of decisions.
- How many records it has, and how evenly its clients: more of them are more steps of a training.
- What is forecast of it. A forecast knows no training, but how a federation's people differ from all, which is no sum
  over clients; how much it is worth for each metric is for the regression to find.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..estimation.estimates import Estimates
from .drawing import Members
from .foreseen import Foreseen

Floats = npt.NDArray[np.float64]

#: Standard deviations up to this share of the mean are rounding.
_ROUNDING = 1e-9


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


class _Scale(NamedTuple):
    """Means and standard deviations of quantities that are of different units; one that nobody knows counts nothing."""

    mean: Floats
    spread: Floats

    @classmethod
    def of(cls, values: Floats) -> _Scale:
        known = np.isfinite(values).all(axis=0)
        values = np.where(known, values, 0.0)
        mean, spread = values.mean(axis=0), values.std(axis=0)
        # Where all are alike but for rounding, as sizes of equal clients, nothing is told.
        told = known & (spread > _ROUNDING * (1.0 + np.abs(mean)))
        return cls(mean, np.where(told, spread, np.inf))

    def scaled(self, values: Floats) -> Floats:
        return np.nan_to_num((values - self.mean) / self.spread, nan=0.0, posinf=0.0, neginf=0.0)


class Makeup:
    """Features of federations, each kind centred and of squares that sum to one in the mean over some of them.

    Parameters
    ----------
    clients
        What is known of them.
    federations
        Those that features are scaled by.
    foreseen
        What is forecast of federations.
    """

    def __init__(
        self, clients: Clients, federations: Sequence[Members], foreseen: Foreseen | None = None
    ) -> None:
        records = np.maximum(np.asarray(clients.records, dtype=np.float64), 1.0)
        self._count = len(records)
        self._groups = [table.shape[1] for table in clients.labels]
        tables = [table.reshape(self._count, -1) for table in clients.labels]
        self._foreseen = foreseen
        forecast = np.zeros((self._count, 0)) if foreseen is None else foreseen.rows
        #: What is summed over a federation: who is in, their records by client, the logarithms of these, records by
        #: group and class, and what a forecast sums.
        self.rows: Floats = np.concatenate(
            [np.eye(self._count), np.diag(records), np.log(records)[:, None], *tables, forecast],
            axis=1,
            dtype=np.float64,
        )
        self._forecast_at = self.rows.shape[1] - forecast.shape[1]
        sums = self.sums(federations)
        self._rate_scale = _Scale.of(self._rates(sums))
        self._size_scale = _Scale.of(self._sizes(sums))
        self._forecast_scale = None if foreseen is None else _Scale.of(self._forecast(sums))
        self._kinds = [_Kind.of(kind) for kind in self._unscaled(sums)]

    def sums(self, federations: Sequence[Members]) -> Floats:
        """Summed rows of federations."""
        return np.stack([self.rows[list(members)].sum(axis=0) for members in federations])

    def features(self, sums: Floats) -> Floats:
        """Shape (federations, features)."""
        pairs = zip(self._kinds, self._unscaled(sums), strict=True)
        return np.concatenate([kind.scaled(values) for kind, values in pairs], axis=1)

    def _unscaled(self, sums: Floats) -> list[Floats]:
        kinds = [self._parts(sums), self._size_scale.scaled(self._sizes(sums))]
        if self._groups:
            rates = self._rate_scale.scaled(self._rates(sums))
            kinds.append(np.concatenate([rates, rates**2, rates[:, :1] * rates[:, 1:]], axis=1))
        if self._forecast_scale is not None:
            kinds.append(self._forecast_scale.scaled(self._forecast(sums)))
        return kinds

    def _parts(self, sums: Floats) -> Floats:
        """Every client's part in federations."""
        heads, records = sums[:, : self._count], sums[:, self._count : 2 * self._count]
        size, total = heads.sum(axis=1, keepdims=True), records.sum(axis=1, keepdims=True)
        return np.asarray((heads / np.maximum(size, 1.0) + records / np.maximum(total, 1.0)) / 2)

    def _sizes(self, sums: Floats) -> Floats:
        """All records of federations and their clients' mean, as logarithms, and how unevenly they share them: Σ p²."""
        heads, records = sums[:, : self._count], sums[:, self._count : 2 * self._count]
        total = np.maximum(records.sum(axis=1), 1.0)
        mean = sums[:, 2 * self._count] / np.maximum(heads.sum(axis=1), 1.0)
        return np.stack([np.log(total), mean, (records**2).sum(axis=1) / total**2], axis=1)

    def _forecast(self, sums: Floats) -> Floats:
        """Forecast metrics of federations."""
        assert self._foreseen is not None
        return self._foreseen.values(np.ascontiguousarray(sums[:, self._forecast_at :]))

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
