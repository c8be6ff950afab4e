"""The swap neighbourhood of a federation: its best swaps, and the descent to a swap-local optimum."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .compiled import strict
from .constraints import Limits, allowed, usage
from .control import Control
from .kernels import Spec, swap_loss
from .outcome import KEEP, Found, as_members
from .problem import PFL, Problem

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Swaps evaluated between two looks at Ctrl-C.
_SLICE = 4096
#: Up to this many swaps the whole neighbourhood is scanned at every step; beyond, a short list first.
_SMALL = 20_000
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


@strict
def _top_swaps(
    spec: Spec,
    rows: Floats,
    limits: Limits,
    used: Floats,
    counts: Ints,
    sums: Floats,
    outs: Ints,
    ins: Ints,
    keep: int,
) -> tuple[Floats, Ints, int]:
    scratch = np.zeros((2, spec.scratch))
    losses = np.full(keep, np.inf)
    swaps = np.full((keep, 2), -1, dtype=np.int64)
    evaluations = 0
    for b in range(ins.size):
        into = ins[b]
        for a in range(outs.size):
            out = outs[a]
            if not allowed(limits, used, counts, out, into):
                continue
            loss = swap_loss(spec, scratch, sums, rows[out], rows[into])
            evaluations += 1
            if loss < losses[keep - 1]:
                at = keep - 1
                while at > 0 and losses[at - 1] > loss:
                    losses[at] = losses[at - 1]
                    swaps[at] = swaps[at - 1]
                    at -= 1
                losses[at] = loss
                swaps[at, 0] = out
                swaps[at, 1] = into
    return losses, swaps, evaluations


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
    step = max(1, _SLICE // max(1, len(outs)))
    chunks = list(range(0, len(ins), step)) if len(outs) else []

    def scan(start: int) -> tuple[Floats, Ints, int] | None:
        if control.stopped():
            return None
        chunk = ins[start : start + step]
        if problem.spec is not None:
            part: tuple[Floats, Ints, int] = _top_swaps(
                problem.spec, problem.rows, limits, used, counts, sums, outs, chunk, keep
            )
        else:
            part = _generic_top_swaps(problem, limits, used, counts, sums, outs, chunk, keep)
        control.report(part[2], float(part[0].min(initial=np.inf)))
        return part

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


def _generic_top_swaps(
    problem: Problem,
    limits: Limits,
    used: Floats,
    counts: Ints,
    sums: Floats,
    outs: Ints,
    ins: Ints,
    keep: int,
) -> tuple[Floats, Ints, int]:
    found: list[tuple[float, int, int]] = []
    evaluations = 0
    for out in outs:
        feasible = np.array([i for i in ins if allowed(limits, used, counts, out, i)], dtype=np.int64)
        if len(feasible) == 0:
            continue
        losses = problem.evaluate(sums - problem.rows[out] + problem.rows[feasible])
        evaluations += len(feasible)
        found += [(float(loss), int(out), int(into)) for loss, into in zip(losses, feasible, strict=True)]
        found = sorted(found)[:keep]
    losses = np.array([loss for loss, _, _ in found], dtype=np.float64)
    swaps = np.array([(out, into) for _, out, into in found], dtype=np.int64).reshape(-1, 2)
    return losses, swaps, evaluations


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
        scores = problem.rows @ problem.objective.gradient(problem.sums(members))
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
        if swaps.losses[at] >= loss - TOLERANCE * max(1.0, abs(loss)) and tried == 0:
            break
        if tried and not several:
            break
        out, into = swaps.outs[at], swaps.ins[at]
        if out not in members or into in members:
            continue
        used, counts = usage(limits, members)
        if not allowed(limits, used, counts, out, into):
            continue
        trial = np.sort(np.append(members[members != out], into))
        value = problem.loss(trial)
        tried += 1
        if value < loss - TOLERANCE * max(1.0, abs(loss)):
            members, loss = trial, value
    return members, loss, tried
