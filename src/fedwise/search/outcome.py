"""Outcome: what a search method found, before evidence is added; and Method, what all of them share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from .constraints import Limits
from .control import Control
from .problem import Problem

Ints = npt.NDArray[np.int64]
Found = tuple[float, tuple[int, ...]]

#: How many federations a search remembers beside the best.
KEEP = 16


@dataclass(frozen=True)
class Outcome:
    """A federation and how sure the search is of it.

    Parameters
    ----------
    members
        Sorted client positions.
    loss
        Their loss, summed afresh.
    ranked
        Distinct good federations met, best first, `members` among them.
    evaluations
        Losses computed.
    exhaustive
        Every feasible federation of this size was evaluated.
    local
        No single feasible swap lowers the loss: all were evaluated.
    chains, agreed
        Independent chains, and how many of them ended in `members`.
    trace
        (evaluations, best loss) pairs.
    """

    members: tuple[int, ...]
    loss: float
    ranked: tuple[Found, ...] = ()
    evaluations: int = 0
    exhaustive: bool = False
    local: bool = False
    chains: int = 0
    agreed: int = 0
    trace: tuple[tuple[int, float], ...] = field(default=())


class Method(Protocol):
    """A way to search. Implementations are frozen dataclasses of settings."""

    @property
    def name(self) -> str:
        """The name shown in a selection."""

    def search(self, problem: Problem, limits: Limits, k: int, *, seed: int, control: Control) -> Outcome:
        """The best federation of `k` clients within `limits` that this method finds."""


def rank(problem: Problem, found: Iterable[Found], keep: int = KEEP) -> tuple[Found, ...]:
    """Distinct federations with freshly summed losses, best first, ties in order of positions."""
    distinct = {members: loss for loss, members in found}
    nearly = sorted((loss, members) for members, loss in distinct.items())[:keep]
    return tuple(sorted((problem.loss(members), members) for _, members in nearly))


def as_members(positions: Iterable[int] | Ints) -> tuple[int, ...]:
    """Client positions as a sorted tuple of plain integers."""
    return tuple(sorted(int(i) for i in positions))
