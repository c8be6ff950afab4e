"""The swap neighbourhood of a federation: its best swaps, and the descent to a swap-local optimum."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .constraints import Limits, keeps, usage
from .control import Control
from .outcome import KEEP, Found, as_members
from .problem import PFL, Problem

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Swaps evaluated between two looks at Ctrl-C, compiled and for an objective in Python.
_SLICE = 4096
_PYTHON_SLICE = 512
#: Up to this many swaps the whole neighbourhood is scanned at every step; beyond, a short list first.
_SMALL = 4_000
_SHORT_OUTS, _SHORT_INS = 16, 128
#: An improvement must exceed rounding, or a descent could circle.
TOLERANCE = 1e-12


@dataclass(frozen=True)
class Swaps:
    """The best swaps of a federation, best first: losses, who leaves, who joins; and how many were tried."""

    losses: Floats
    outs: Ints
    ins: Ints
    evaluations: int
    complete: bool


@dataclass(frozen=True)
class Descent:
    """Where a descent ended. `proven`: every feasible swap was evaluated there and none improves."""

    members: tuple[int, ...]
    loss: float
    neighbours: tuple[Found, ...]
    evaluations: int
    proven: bool


def _tried(limits: Limits, used: Floats, counts: Ints, outs: Ints, ins: Ints) -> Ints:
    """The swaps of `outs` × `ins` that keep every limit: who leaves, who joins. Shape (swaps, 2)."""
    pairs = np.column_stack([np.tile(outs, len(ins)), np.repeat(ins, len(outs))])
    return pairs[keeps(limits, used, counts, pairs[:, 0], pairs[:, 1])]


def _best(losses: Floats, swaps: Ints, keep: int) -> tuple[Floats, Ints]:
    """The `keep` swaps of lowest finite loss, ascending; of equal losses the first stays ahead."""
    order = np.argsort(losses, kind="stable")[:keep]
    order = order[losses[order] < np.inf]
    return losses[order], swaps[order]


def best_swaps(
    problem: Problem,
    limits: Limits,
    members: Ints,
    *,
    control: Control,
    keep: int = KEEP,
    outs: Ints | None = None,
    ins: Ints | None = None,
) -> Swaps:
    """The `keep` best feasible swaps of `members`, among `outs` × `ins` or among all."""
    if outs is None:
        outs = np.setdiff1d(members, limits.fixed)
    if ins is None:
        ins = np.setdiff1d(limits.free, members)
    sums = problem.sums(np.sort(members))
    used, counts = usage(limits, members)
    size = _SLICE if problem.spec is not None else _PYTHON_SLICE
    step = max(1, size // max(1, len(outs)))
    chunks = list(range(0, len(ins), step)) if len(outs) else []

    def scan(start: int) -> tuple[Floats, Ints, int] | None:
        if control.stopped():
            return None
        tried = _tried(limits, used, counts, outs, ins[start : start + step])
        losses, swaps = _best(problem.swapped(sums, tried), tried, keep)
        control.report(len(tried), float(losses.min(initial=np.inf)))
        return losses, swaps, len(tried)

    scanned = control.map(scan, chunks)
    parts = [part for part in scanned if part is not None]
    if not parts:
        return Swaps(np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64), 0, not control.stopped())
    losses = np.concatenate([part[0] for part in parts])
    swaps = np.concatenate([part[1] for part in parts])
    order = np.lexsort((swaps[:, 1], swaps[:, 0], losses))[:keep]
    order = order[np.isfinite(losses[order])]
    evaluations = sum(part[2] for part in parts)
    return Swaps(losses[order], swaps[order, 0], swaps[order, 1], evaluations, len(parts) == len(chunks))


def descend(
    problem: Problem, limits: Limits, members: Ints | tuple[int, ...], *, control: Control
) -> Descent:
    """Swap while any single swap lowers the loss.

    Small neighbourhoods are scanned whole at every step (steepest descent). In large ones the gradient
    of the loss ranks who should leave and who should join, only a short list is evaluated, and when it
    has nothing left to offer a scan of the whole neighbourhood either finds more or proves the optimum.
    """
    current = np.array(sorted(int(i) for i in members), dtype=np.int64)
    loss = problem.loss(current)
    evaluations = 1
    control.report(1, loss)
    large = isinstance(problem.objective, PFL) and _neighbourhood_size(limits, current) > _SMALL
    while True:
        if large:
            current, loss, tried = _short_list_descent(problem, limits, current, loss, control)
            evaluations += tried
        swaps = best_swaps(problem, limits, current, control=control)
        evaluations += swaps.evaluations
        improved, better, extra = _apply(problem, limits, current, loss, swaps, several=large)
        evaluations += extra
        if better < loss:
            current, loss = improved, better
            if not control.stopped():
                continue
        proven = swaps.complete and better >= loss and not control.stopped()
        neighbours = tuple(
            (float(value), as_members([*current[current != out], into]))
            for value, out, into in zip(swaps.losses, swaps.outs, swaps.ins, strict=True)
            if out in current and into not in current
        )
        return Descent(as_members(current), loss, neighbours, evaluations, proven)


def _neighbourhood_size(limits: Limits, members: Ints) -> int:
    outs = len(members) - len(limits.fixed)
    return outs * (len(limits.free) - outs)


def _short_list_descent(
    problem: Problem, limits: Limits, members: Ints, loss: float, control: Control
) -> tuple[Ints, float, int]:
    assert isinstance(problem.objective, PFL)
    evaluations = 0
    while not control.stopped():
        # Not `@`: redraws are searched side by side, and the threads of BLAS would wait for one another.
        scores = np.einsum("cw,w->c", problem.rows, problem.objective.gradient(problem.sums(members)))
        outs = np.setdiff1d(members, limits.fixed)
        ins = np.setdiff1d(limits.free, members)
        outs = outs[np.argsort(-scores[outs], kind="stable")[:_SHORT_OUTS]]
        ins = ins[np.argsort(scores[ins], kind="stable")[:_SHORT_INS]]
        swaps = best_swaps(problem, limits, members, control=control, outs=np.sort(outs), ins=np.sort(ins))
        evaluations += swaps.evaluations
        members, better, extra = _apply(problem, limits, members, loss, swaps, several=True)
        evaluations += extra
        if better >= loss:
            break
        loss = better
    return members, loss, evaluations


def _apply(
    problem: Problem, limits: Limits, members: Ints, loss: float, swaps: Swaps, *, several: bool
) -> tuple[Ints, float, int]:
    """Apply the best swap, and where `several` also the next ones that still improve. Returns tries."""
    tried = 0
    for at in range(len(swaps.losses)):
        if tried == 0 and not _improves(swaps.losses[at], loss):
            break
        if tried and not several:
            break
        out, into = swaps.outs[at], swaps.ins[at]
        if out not in members or into in members:
            continue
        used, counts = usage(limits, members)
        if not keeps(limits, used, counts, np.array([out]), np.array([into]))[0]:
            continue
        trial = np.sort(np.append(members[members != out], into))
        value = problem.loss(trial)
        tried += 1
        if _improves(value, loss):
            members, loss = trial, value
    return members, loss, tried


def _improves(value: float, loss: float) -> bool:
    """Whether a loss is lower by more than rounding. Any finite loss is lower than an infinite one."""
    slack = TOLERANCE * max(1.0, abs(loss)) if math.isfinite(loss) else 0.0
    return bool(value < loss - slack)
