"""Annealing: independent chains of swaps under a falling temperature, then descent."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import FedwiseError
from .chains import BEST, EVALUATIONS, Walk, anneal, seed_words
from .constraints import Limits, usage
from .control import Control
from .feasible import start
from .neighbourhood import Descent, descend
from .outcome import KEEP, Found, Outcome, as_members, rank
from .problem import Problem

Ints = npt.NDArray[np.int64]

#: Proposals between two looks at Ctrl-C, compiled and for an objective in Python.
_SLICE = 512
_PYTHON_SLICE = 16
#: Proposals over which the objective's spread is measured.
_PROBES = 64


@dataclass(frozen=True)
class Annealing:
    """Settings of the annealing search. The defaults are ours; `paper()` gives the paper's.

    Parameters
    ----------
    chains
        Independent chains; the best of them wins. Default: 8, fewer in very large pools.
    steps
        Most proposals a chain makes. Default: 20 for each swap a federation has, between 2,000 and
        20,000.
    initial, final
        First and last temperature. In units of the objective's spread (the mean size of a random
        swap's change) if `scaled`, else in units of the loss.
    cooling
        Factor applied after every `level` proposals. Default: what leads from `initial` to `final`
        in `steps`.
    level
        Proposals per temperature.
    descent
        Finish each chain by descending to a swap-local optimum.
    """

    chains: int | None = None
    steps: int | None = None
    initial: float = 0.5
    final: float = 0.002
    cooling: float | None = None
    level: int = 15
    scaled: bool = True
    descent: bool = True

    def __post_init__(self) -> None:
        for field in ("chains", "steps", "level"):
            value = getattr(self, field)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise FedwiseError(f"{field} must be an integer of at least 1, got {value!r}")
        if not (0 < self.final <= self.initial and math.isfinite(self.initial)):
            raise FedwiseError(
                f"temperatures must satisfy 0 < final <= initial, got initial={self.initial}, final={self.final}"
            )
        if self.cooling is not None and not 0 < self.cooling < 1:
            raise FedwiseError(f"cooling must lie between 0 and 1, got {self.cooling}")

    @classmethod
    def paper(cls, *, chains: int = 1) -> Annealing:
        """The paper's schedule: temperature 1, factor 0.98 every 15 proposals, 5,000 proposals at most.

        The paper reports the best of five runs: ``paper(chains=5)``.
        """
        return cls(
            chains=chains,
            steps=5000,
            initial=1.0,
            final=1e-4,
            cooling=0.98,
            level=15,
            scaled=False,
            descent=False,
        )

    @property
    def name(self) -> str:
        """``annealing``."""
        return "annealing"

    def search(self, problem: Problem, limits: Limits, k: int, *, seed: int, control: Control) -> Outcome:
        """The best of all chains; with `descent`, a swap-local optimum."""
        slots = k - len(limits.fixed)
        swaps = slots * (len(limits.free) - slots)
        count = self.chains or (8 if swaps <= 50_000 else 4 if swaps <= 250_000 else 2)
        steps = self.steps or min(max(20 * swaps, 2_000), 20_000)
        starts = [start(limits, k, seed, chain) for chain in range(count)]
        if swaps == 0:
            members = as_members(starts[0])
            loss = problem.loss(members)
            return Outcome(
                members, loss, ((loss, members),), 1, exhaustive=True, local=True, trace=((1, loss),)
            )
        control.expect(count * steps)
        ran = control.map(
            lambda chain: self._chain(problem, limits, starts[chain], seed, chain, steps, control),
            range(count),
        )
        found: list[Found] = [(chain.best, chain.members) for chain in ran]
        evaluations = sum(chain.evaluations for chain in ran)
        ends: list[Descent] = []
        if self.descent and not control.stopped():
            # Chains that met at one federation need one descent.
            for members in dict.fromkeys(chain.members for chain in ran):
                ends.append(descend(problem, limits, members, control=control))
            evaluations += sum(end.evaluations for end in ends)
            found += [(end.loss, end.members) for end in ends]
            found += [neighbour for end in ends for neighbour in end.neighbours]
        ranked = rank(problem, found, KEEP)
        loss, members = ranked[0]
        landed = {chain: chain for chain in (c.members for c in ran)}
        landed |= dict(zip(dict.fromkeys(c.members for c in ran), (e.members for e in ends), strict=False))
        agreed = sum(landed[chain.members] == members for chain in ran)
        local = any(end.proven and end.members == members for end in ends)
        return Outcome(
            members, loss, ranked, evaluations, False, local, count, agreed, _trace(ran, evaluations, loss)
        )

    def _schedule(self, spread: float, steps: int) -> tuple[float, float, int]:
        """First temperature, factor per level, and proposals until the last temperature."""
        unit = max(spread, 1e-15) if self.scaled else 1.0
        if self.cooling is None:
            levels = max(1, steps // self.level)
            return self.initial * unit, (self.final / self.initial) ** (1 / levels), steps
        levels = math.floor(math.log(self.final / self.initial) / math.log(self.cooling)) + 1
        return self.initial * unit, self.cooling, min(steps, levels * self.level)

    def _chain(
        self,
        problem: Problem,
        limits: Limits,
        members: Ints,
        seed: int,
        chain: int,
        steps: int,
        control: Control,
    ) -> _Chain:
        free = np.setdiff1d(members, limits.fixed)
        order = np.concatenate([free, np.setdiff1d(limits.free, free)]).astype(np.int64)
        slots = len(free)
        loss = problem.loss(members)
        spread = _spread(problem, members, order, slots, seed, chain) if self.scaled else 1.0
        initial, cooling, steps = self._schedule(spread, steps)
        used, counts = usage(limits, members)
        walk = Walk(
            order,
            slots,
            problem.sums(limits.fixed),
            problem.sums(members),
            used,
            counts,
            best=order[:slots].copy(),
            floats=np.array([loss, loss, initial]),
            integers=np.array([0, 1, 0], dtype=np.int64),
            words=seed_words(seed & 0xFFFFFFFFFFFFFFFF, chain),
            cooling=cooling,
            level=self.level,
        )
        trace = [(1, loss)]
        stride = _SLICE if problem.spec is not None else _PYTHON_SLICE
        for first in range(0, steps, stride):
            if control.stopped():
                break
            before = int(walk.integers[EVALUATIONS])
            size = min(stride, steps - first)
            problem.run(anneal, limits, walk, size)
            control.report(int(walk.integers[EVALUATIONS]) - before, float(walk.floats[BEST]))
            if (first + size) % _SLICE == 0 or first + size == steps:
                trace.append((int(walk.integers[EVALUATIONS]), float(walk.floats[BEST])))
        found = as_members([*limits.fixed, *walk.best])
        return _Chain(found, float(walk.floats[BEST]), int(walk.integers[EVALUATIONS]), tuple(trace))


@dataclass(frozen=True)
class _Chain:
    members: tuple[int, ...]
    best: float
    evaluations: int
    trace: tuple[tuple[int, float], ...]


def _spread(problem: Problem, members: Ints, order: Ints, slots: int, seed: int, chain: int) -> float:
    """Mean size of the change a random swap makes, between finite losses."""
    rng = np.random.default_rng([seed & 0xFFFFFFFFFFFFFFFF, chain, 1])
    loss, sums = problem.loss(members), problem.sums(members)
    found = []
    for out in rng.choice(order[:slots], size=min(slots, 4), replace=False):
        ins = rng.choice(order[slots:], size=min(len(order) - slots, _PROBES // 4), replace=False)
        found.append(problem.joined(sums - problem.rows[out], np.sort(ins)))
    losses = np.concatenate(found)
    losses = losses[np.isfinite(losses)]
    if len(losses) == 0:
        return 1.0
    # A start of infinite loss is compared with the best of its neighbours instead.
    return float(np.abs(losses - (loss if math.isfinite(loss) else losses.min())).mean())


def _trace(ran: list[_Chain], evaluations: int, loss: float) -> tuple[tuple[int, float], ...]:
    """Best loss of all chains against evaluations, the chains laid side by side."""
    points: list[tuple[int, float]] = []
    best, done = math.inf, 0
    for level in range(max(len(chain.trace) for chain in ran)):
        reached = [chain.trace[min(level, len(chain.trace) - 1)] for chain in ran]
        best = min(best, *(value for _, value in reached)) if len(reached) > 1 else min(best, reached[0][1])
        done = sum(count for count, _ in reached)
        points.append((done, best))
    if evaluations > done or loss < best:
        points.append((evaluations, loss))
    return tuple(points)
