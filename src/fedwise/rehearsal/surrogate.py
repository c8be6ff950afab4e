"""Surrogate: metrics of federations by all that was rehearsed, of themselves and of others.

A mixed model (`fedwise.rehearsal.regression`) learns from all rehearsals together, short and full and of all stages,
what the makeup of a federation brings and what each has beyond. It points the search to promising federations, and what
it says of those that were rehearsed is what they are compared by: by the mean over its own few stages alone, whoever
was lucky in them would be chosen.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..estimation.estimates import Estimates
from .drawing import Members
from .foreseen import Foreseen
from .goal import Goal
from .makeup import Clients, Makeup
from .regression import Regression, regress

Floats = npt.NDArray[np.float64]


class Observation(NamedTuple):
    """One rehearsal: members, the stage, and metrics in the order of the goal's."""

    members: Members
    stage: int
    values: Sequence[float]


class Surrogate:
    """Metrics of federations, and an objective for the searches.

    Parameters
    ----------
    clients
        What is known of them.
    observations
        All rehearsals so far.
    goal
        Whose metrics they hold.
    level
        Stages at whose mean level metrics are given.
    foreseen
        What is forecast of federations.
    """

    name = "surrogate"

    def __init__(
        self,
        clients: Clients,
        observations: Sequence[Observation],
        goal: Goal,
        *,
        level: Sequence[int],
        foreseen: Foreseen | None = None,
    ) -> None:
        self.goal = goal
        self.bounds: dict[str, float] = {}
        self._place = {one: at for at, one in enumerate(dict.fromkeys(o.members for o in observations))}
        self._makeup = Makeup(clients, list(self._place), foreseen)
        federation = np.array([self._place[o.members] for o in observations])
        stage = np.array([o.stage for o in observations])
        features = self._makeup.features(self._makeup.sums(list(self._place)))
        values = np.array([o.values for o in observations], dtype=np.float64)
        #: Size of what is maximised: 1, or how far it is spread where it is counted in units of its own (dollars).
        self.unit = 1.0
        self._fits: list[Regression] = []
        levels, apart = [], []
        for name, column in zip(goal.metrics, values.T, strict=True):
            seen = np.isfinite(column)
            if name in goal.weights and seen.any():
                self.unit = max(self.unit, float(column[seen].std()))
            numbers, which = np.unique(stage[seen], return_inverse=True)
            fit = regress(features, federation[seen], which, column[seen])
            self._fits.append(fit)
            asked = np.isin(numbers, level)
            levels.append(fit.levels[asked].mean() if asked.any() else np.nan)
            unseen = np.bincount(federation[seen], minlength=len(features)) == 0
            apart.append(np.where(unseen, np.nan, fit.apart))
        self._levels = np.array(levels)
        self._effects = np.stack([fit.effects for fit in self._fits], axis=1)
        #: Metrics of the rehearsed federations: shape (federations, metrics).
        self._estimated = self._levels + features @ self._effects + np.stack(apart, axis=1)

    def within(self, bounds: dict[str, float]) -> Surrogate:
        """The same as an objective that keeps limits."""
        other = copy.copy(self)
        other.bounds = bounds
        return other

    def drawn(self, rng: np.random.Generator) -> Surrogate:
        """The same with effects drawn from what the rehearsals leave open, so that searches differ."""
        other = copy.copy(self)
        drawn = [fit.effects + fit.root @ rng.standard_normal(fit.root.shape[1]) for fit in self._fits]
        other._effects = np.stack(drawn, axis=1)
        return other

    def rows(self, estimates: Estimates | None = None) -> Floats:
        """What is summed over a federation."""
        return self._makeup.rows

    def evaluate(self, sums: Floats) -> Floats:
        """Loss of each summed row by its makeup, limits as penalties."""
        return self._loss(self.predicted(sums))

    def predicted(self, sums: Floats) -> Floats:
        """Metrics of each summed row by its makeup: shape (batch, metrics)."""
        return np.asarray(self._levels + self._makeup.features(sums) @ self._effects)

    def estimated(self, members: Members) -> dict[str, float]:
        """Metrics of a federation, with what its own rehearsals say of it; NaN where they do not know one."""
        return dict(zip(self.goal.metrics, self._values(members).tolist(), strict=True))

    def mean(self, federations: Sequence[Members]) -> dict[str, float]:
        """Mean metrics of federations by their makeup."""
        found = self.predicted(self._makeup.sums(federations)).mean(axis=0)
        return dict(zip(self.goal.metrics, found.tolist(), strict=True))

    def loss(self, members: Members) -> float:
        """Loss of a federation, with what its own rehearsals say of it."""
        return float(self._loss(self._values(members)[None])[0])

    def _values(self, members: Members) -> Floats:
        if members in self._place:
            return np.asarray(self._estimated[self._place[members]])
        return np.asarray(self.predicted(self._makeup.sums([members]))[0])

    def _loss(self, values: Floats) -> Floats:
        found = dict(zip(self.goal.metrics, values.T, strict=True))
        return self.goal.losses(found, self.bounds, unit=self.unit)
