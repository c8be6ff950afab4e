"""Chooser: an objective that is no function of summed rows and finds its federation itself, such as a rehearsal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from ..errors import FedwiseError
from ..estimation.estimates import Estimates
from ..objective.weights import Weights
from ..pool.pool import Pool
from .constraints import Limits
from .control import Control
from .describe import Inquiry, Searched
from .problem import Problem
from .selection import Selection

Floats = npt.NDArray[np.float64]


class Asks(NamedTuple):
    """What any way of choosing needs beside the pool."""

    estimates: Estimates
    weights: Weights
    alternatives: int
    seed: int


@dataclass(frozen=True)
class Question:
    """All that was asked of `select`.

    Parameters
    ----------
    feasible
        Limits of each size that may be chosen.
    alternatives
        Most other federations to report.
    control
        Threads, progress and Ctrl-C.
    """

    pool: Pool
    feasible: dict[int, Limits]
    control: Control
    estimates: Estimates
    weights: Weights
    alternatives: int
    seed: int

    @classmethod
    def of(
        cls,
        pool: object,
        feasible: dict[int, Limits],
        control: Control,
        estimates: Estimates,
        weights: Weights,
        alternatives: int,
        seed: int,
    ) -> Question:
        """Refuses estimates alone: whoever chooses for itself needs the releases."""
        if not isinstance(pool, Pool):
            raise FedwiseError("this objective must see the releases, got estimates; pass the pool itself")
        return cls(pool, feasible, control, estimates, weights, alternatives, seed)

    def describe(self, objective: Chooser, chosen: Searched, found: list[Searched]) -> Selection:
        """A selection with all that does not depend on the objective; its evidence is for the objective to add."""
        problem = Problem.of(self.estimates, _Named(objective.name))
        inquiry = Inquiry(
            problem, self.estimates, self.pool, self.weights, "none", self.alternatives, self.seed
        )
        return inquiry.describe(chosen, found, self.control)


@runtime_checkable
class Chooser(Protocol):
    """What `select` hands the whole question to."""

    name: str

    def choose(self, question: Question) -> Selection:
        """The federation, with its evidence. Ctrl-C is asked for with ``question.control.stopped()``."""


class _Named:
    """A name where the description asks for an objective; it is never evaluated."""

    def __init__(self, name: str) -> None:
        self.name = name

    def rows(self, estimates: Estimates) -> Floats:
        """Nothing of a client counts."""
        return np.zeros((len(estimates.clients), 1))

    def evaluate(self, sums: Floats) -> Floats:
        """Every federation is alike."""
        return np.zeros(len(sums))
