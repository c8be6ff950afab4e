"""Foreseen: what a forecast says of federations before any of them is rehearsed.

It tells random federations that are together as all are, points to the first candidates, and is a part of what a
regression on rehearsals starts from (`fedwise.rehearsal.makeup`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ..estimation.estimates import Estimates
from .drawing import Members
from .goal import RANDOM, Bound, Goal

Floats = npt.NDArray[np.float64]


class Forecasts(Protocol):
    """A fitted forecast: `fedwise.forecasting.Forecaster`."""

    @property
    def rows(self) -> Floats:
        """What is summed over a federation: shape (clients, width)."""

    def values(self, sums: Floats, names: Sequence[str] | None = None) -> Floats:
        """Metrics of summed rows: shape (batch, metrics)."""


class Foreseen:
    """Some metrics of any federation, as forecast.

    Parameters
    ----------
    forecaster
        Of the pool.
    names
        The metrics, as the goal writes them.
    """

    def __init__(self, forecaster: Forecasts, names: Sequence[str]) -> None:
        self._forecaster = forecaster
        self.names = tuple(names)
        #: What is summed over a federation: shape (clients, width).
        self.rows = forecaster.rows

    def values(self, sums: Floats) -> Floats:
        """Metrics of summed rows: shape (batch, metrics)."""
        return self._forecaster.values(sums, self.names)

    def of(self, federations: Sequence[Members]) -> Floats:
        """The same of federations."""
        return self.values(np.stack([self.rows[list(members)].sum(axis=0) for members in federations]))

    def aim(self, goal: Goal, random: Sequence[Members]) -> Aim | None:
        """The goal as an objective of forecasts, ``random`` limits as these have them; ``None`` where it is unknown."""
        if not set(goal.weights) <= set(self.names):
            return None
        known = {name: limit for name, limit in goal.limits.items() if name in self.names}
        values = self.of(random)
        means = dict(zip(self.names, values.mean(axis=0).tolist(), strict=True))
        wanted = np.asarray(sum(w * values[:, self.names.index(name)] for name, w in goal.weights.items()))
        return Aim(self, Goal(goal.weights, known), _bounds(known, means), max(1.0, float(wanted.std())))


@dataclass
class Aim:
    """An objective for the searches: the goal by forecast metrics, limits as penalties."""

    foreseen: Foreseen
    goal: Goal
    bounds: Mapping[str, float]
    unit: float
    name: str = "forecast"

    def rows(self, estimates: Estimates | None = None) -> Floats:
        """What is summed over a federation."""
        return self.foreseen.rows

    def evaluate(self, sums: Floats) -> Floats:
        """Loss of each summed row."""
        found = dict(zip(self.foreseen.names, self.foreseen.values(sums).T, strict=True))
        return self.goal.losses(found, self.bounds, unit=self.unit)


def _bounds(limits: Mapping[str, Bound], means: Mapping[str, float]) -> dict[str, float]:
    return {name: means[name] if limit == RANDOM else float(limit) for name, limit in limits.items()}
