"""Exact: every federation of the size asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..errors import FedwiseError
from .constraints import Limits, usage
from .control import Control
from .enumeration import enumerate_block, unrank
from .feasible import start
from .outcome import KEEP, Found, Outcome, as_members, rank
from .problem import Problem

#: Federations between two looks at Ctrl-C; every block starts from a fresh sum, so rounding cannot pile up.
_BLOCK = 16_384
_PYTHON_BLOCK = 256


@dataclass(frozen=True)
class Exact:
    """Enumerate all federations in revolving-door order, each one swap from the one before.

    Parameters
    ----------
    most
        Refuse to start beyond this many federations, about a day on one core.
    """

    most: int = 20_000_000_000

    @property
    def name(self) -> str:
        """``exact``."""
        return "exact"

    def search(self, problem: Problem, limits: Limits, k: int, *, seed: int, control: Control) -> Outcome:
        """The federation of lowest loss. `seed` only decides what an interrupted search falls back to."""
        slots = k - len(limits.fixed)
        total = math.comb(len(limits.free), slots)
        if total > self.most:
            raise FedwiseError(
                f"exact search must visit at most {self.most:,} federations, got {total:,}; "
                "use method='annealing', a smaller k, or include and exclude clients"
            )
        first = as_members(start(limits, k, seed, 0))
        best: list[Found] = [(problem.loss(first), first)]
        control.expect(total)
        control.report(0, best[0][0])
        size = _BLOCK if problem.spec is not None else _PYTHON_BLOCK
        blocks = range(0, total, size)
        evaluations, visited, trace = 0, 0, [(1, best[0][0])]
        # Several blocks at a time: memory stays small and the trace grows with the work.
        batch = 16 * size
        for begin in range(0, total, batch):
            chunk = blocks[begin // size : (begin + batch) // size]
            answers = control.map(
                lambda at: self._block(problem, limits, slots, at, min(size, total - at), control), chunk
            )
            for answer in answers:
                if answer is not None:
                    evaluations += answer[0]
                    visited += answer[1]
                    best += answer[2]
            best = sorted(set(best))[: 2 * KEEP]
            if best[0][0] < trace[-1][1] or begin + batch >= total:
                trace.append((evaluations, best[0][0]))
            if control.stopped():
                break
        ranked = rank(problem, best)
        loss, members = ranked[0]
        done = visited == total
        return Outcome(members, loss, ranked, evaluations, done, done, trace=tuple(trace))

    def _block(
        self, problem: Problem, limits: Limits, slots: int, at: int, steps: int, control: Control
    ) -> tuple[int, int, list[Found]] | None:
        if control.stopped():
            return None
        subset = unrank(at, slots, len(limits.free))
        members = np.concatenate([limits.fixed, limits.free[subset - 1]]).astype(np.int64)
        used, counts = usage(limits, members)
        losses = np.full(KEEP, np.inf)
        kept = np.ones((KEEP, slots), dtype=np.int64)
        base = problem.sums(limits.fixed)
        # A kernel takes one sum at a time, fresh from the cache; an objective in Python a whole batch.
        batch = 1 if problem.spec is not None else steps
        evaluations = problem.run(
            enumerate_block, limits, base, used, counts, subset, steps, batch, losses, kept
        )
        found = [
            (float(loss), as_members([*limits.fixed, *limits.free[chosen - 1]]))
            for loss, chosen in zip(losses, kept, strict=True)
            if np.isfinite(loss)
        ]
        control.report(evaluations, found[0][0] if found else math.inf)
        return evaluations, steps, found
