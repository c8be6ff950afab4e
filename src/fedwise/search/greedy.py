"""Greedy: grow, shrink or exchange, one best step at a time. Fast, and a baseline for the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from ..errors import FedwiseError
from .constraints import Limits, satisfied
from .control import Control
from .feasible import start
from .neighbourhood import descend
from .outcome import Outcome, as_members, rank
from .problem import Problem

Ints = npt.NDArray[np.int64]
Direction = Literal["forward", "backward", "exchange"]


@dataclass(frozen=True)
class Greedy:
    """One best step at a time.

    Parameters
    ----------
    direction
        ``forward`` adds the client that lowers the loss most until k are in; ``backward`` starts from
        everyone and drops; ``exchange`` starts at random and swaps to a swap-local optimum.
        A forward or backward end that breaks a limit is repaired by starting an exchange from a
        feasible federation.
    """

    direction: Direction = "forward"

    def __post_init__(self) -> None:
        if self.direction not in get_args(Direction):
            known = ", ".join(get_args(Direction))
            raise FedwiseError(f"direction must be one of {known}, got '{self.direction}'")

    @property
    def name(self) -> str:
        """``greedy`` with its direction."""
        return f"greedy-{self.direction}"

    def search(self, problem: Problem, limits: Limits, k: int, *, seed: int, control: Control) -> Outcome:
        """The federation the steps lead to."""
        fallback = as_members(start(limits, k, seed, 0))
        trace: list[tuple[int, float]] = []
        evaluations = 0
        if self.direction == "exchange":
            members = fallback
        else:
            grow = _forward if self.direction == "forward" else _backward
            reached, evaluations = grow(problem, limits, k, control)
            feasible = len(reached) == k and satisfied(limits, reached)
            members = as_members(reached) if feasible else fallback
            if feasible:
                loss = problem.loss(members)
                return Outcome(members, loss, ((loss, members),), evaluations, trace=((evaluations, loss),))
        trace.append((evaluations + 1, problem.loss(members)))
        end = descend(problem, limits, members, control=control)
        evaluations += end.evaluations
        trace.append((evaluations, end.loss))
        ranked = rank(problem, [(end.loss, end.members), *end.neighbours])
        loss, members = ranked[0]
        return Outcome(members, loss, ranked, evaluations, False, end.proven, trace=tuple(trace))


def _forward(problem: Problem, limits: Limits, k: int, control: Control) -> tuple[Ints, int]:
    members = limits.fixed.copy()
    evaluations = 0
    while len(members) < k and not control.stopped():
        candidates = np.setdiff1d(limits.free, members)
        candidates = candidates[_within_caps(limits, members, candidates)]
        if len(candidates) == 0:
            break
        losses = problem.joined(problem.sums(members), candidates)
        evaluations += len(candidates)
        control.report(len(candidates), float("inf"))
        members = np.sort(np.append(members, candidates[int(np.argmin(losses))]))
    return members, evaluations


def _backward(problem: Problem, limits: Limits, k: int, control: Control) -> tuple[Ints, int]:
    members = np.sort(np.concatenate([limits.fixed, limits.free])).astype(np.int64)
    evaluations = 0
    while len(members) > k and not control.stopped():
        candidates = np.setdiff1d(members, limits.fixed)
        losses = problem.dropped(problem.sums(members), candidates)
        evaluations += len(candidates)
        control.report(len(candidates), float("inf"))
        members = members[members != candidates[int(np.argmin(losses))]]
    return members, evaluations


def _within_caps(limits: Limits, members: Ints, candidates: Ints) -> npt.NDArray[np.bool_]:
    """Candidates whose group has room and whose cost fits what is left (lower bounds are met at the end)."""
    room = np.ones(len(candidates), dtype=bool)
    if len(limits.caps):
        groups = limits.group[members]
        counts = np.bincount(groups[groups >= 0], minlength=len(limits.caps))
        group = limits.group[candidates]
        room &= (group < 0) | (counts[group] < limits.caps[group])
    for row, bound in zip(limits.linear, limits.bounds, strict=True):
        if (row >= 0).all():
            room &= row[members].sum() + row[candidates] <= bound
    return room
