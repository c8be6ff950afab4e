"""Halving: many federations in short rehearsals, fewer in full ones, the best in several stages.

1. Random federations are rehearsed short and in full: what others are compared with, and how far short levels are off.
2. Short rehearsals: candidates of the forecast and random ones first, then those a surrogate points to
   (`fedwise.rehearsal.surrogate`), refitted after every few.
3. Full rehearsals of the best; the better half of them again in the next stage, and so on.

Who is better is said by the surrogate too: it knows all rehearsals so far, a federation's own few among them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import msgspec
import numpy as np
import numpy.typing as npt

from ..objective.interval import Z
from ..objective.limit import SLACK
from ..objective.metric import parse
from ..search.constraints import Limits
from ..search.control import Control
from ..search.feasible import start
from ..search.neighbourhood import descend
from ..search.outcome import rank
from ..search.problem import Problem
from ..training.settings import Training
from .drawing import Members, random_federations
from .foreseen import Foreseen
from .goal import RANDOM, Goal
from .makeup import Clients
from .performance import Performance, compare, with_figures
from .surrogate import Observation, Surrogate
from .trained import Trained
from .trainings import Stopped, Task, Trainings, performance

Ints = npt.NDArray[np.int64]

#: Most records of a double in a short rehearsal. With a quarter of a client's records the order of federations is
#: another one (rank correlation .6 to .7 with full rehearsals), and the search is led away from the good ones.
SHORT = 16_000
#: Numbers of the stages of short rehearsals: others than those of full ones, so that one draw does not decide twice. A
#: stage draws every client once for all federations, so what is learnt of clients errs alike in all of them: the more
#: stages the better, but drawing takes its time. One for so many trials, at least and at most so many.
_FIRST_SHORT, _TRIALS_A_STAGE, _FEWEST_STAGES, _MOST_STAGES = 100, 40, 2, 4
#: Share of the trainings that are short, and federations that are proposed at a time.
_SHORT_SHARE, _BATCH = 0.6, 8
#: Random federations from which a search for a proposal descends, and one for candidates of full rehearsals.
_PROPOSAL_STARTS, _STARTS = 2, 8
#: Random federations that all others stand beside: one for so many trials, at least and at most so many.
_TRIALS_EACH, _FEWEST, _MOST = 16, 4, 8
#: Draws of references that the most typical is taken of, and random federations whose mean `random` limits are.
_DRAWS, _STANDING = 100, 1_000
#: Largest step to which a short rehearsal may lengthen that of the training.
_LARGEST_STEP = 3e-3


@dataclass(frozen=True)
class Asked:
    """What the halving is to find.

    Parameters
    ----------
    clients, known
        Names of all clients, and what is known of them.
    feasible
        Limits of each size.
    settings, most_records
        How a full rehearsal trains, and the most records of its doubles.
    trials
        Trainings in all.
    stages
        Stages of the best federations.
    margin
        Standard errors by which limits are tightened.
    foreseen
        Metrics that are forecast of federations; ``None``: nothing is.
    """

    clients: tuple[str, ...]
    known: Clients
    feasible: dict[int, Limits]
    goal: Goal
    settings: Training
    most_records: int | None
    trials: int
    stages: int
    margin: float
    seed: int
    foreseen: Foreseen | None = None

    @property
    def references(self) -> int:
        """How many random federations all others stand beside."""
        return min(max(self.trials // _TRIALS_EACH, _FEWEST), _MOST)

    @property
    def short_stages(self) -> range:
        """Numbers of the stages in which federations are rehearsed short."""
        count = min(max(self.trials // _TRIALS_A_STAGE, _FEWEST_STAGES), _MOST_STAGES)
        return range(_FIRST_SHORT, _FIRST_SHORT + count)

    @property
    def short_records(self) -> int:
        """Most records of a double in a short rehearsal."""
        return SHORT if self.most_records is None else min(SHORT, self.most_records)

    @property
    def short_settings(self) -> Training:
        """The same training on short doubles: steps are fewer, so each is longer."""
        typical = float(np.median(np.maximum(self.known.records, 1.0))) * (1 - self.settings.test)
        if self.most_records is not None:
            typical = min(typical, self.most_records)
        factor = max(1.0, typical / self.short_records)
        lr = max(self.settings.lr, min(self.settings.lr * factor, _LARGEST_STEP))
        return msgspec.structs.replace(self.settings, lr=lr)


@dataclass
class Halving:
    """The state of a search: what was rehearsed so far."""

    asked: Asked
    trainings: Trainings
    control: Control
    short: dict[Members, tuple[int, Trained]] = field(default_factory=dict)
    full: dict[Members, dict[int, Trained]] = field(default_factory=dict)
    references: list[Members] = field(default_factory=list)
    done: int = 0
    _fitted: tuple[int, Goal, Surrogate] | None = None
    _means: tuple[Surrogate, dict[str, float]] | None = None
    _chain: int = 0

    def run(self, candidates: Iterable[Members]) -> bool:
        """Spend the trials; False where it was stopped before."""
        self.control.expect(self.asked.trials)
        try:
            self._begin()
            self._explore(candidates)
            self._halve()
        except Stopped:
            return False
        return True

    def named(self) -> Halving:
        """Itself, its goal in the full names of what was rehearsed."""
        sample = self.performance(next(iter(self.full)))
        self.asked = replace(self.asked, goal=self.asked.goal.named(sample))
        return self

    # -- the three steps ---------------------------------------------------------------------------

    def _begin(self) -> None:
        self.references = self._typical(self.asked.references)
        for stage in (0, 1):  # two, so that margins are known from the start
            self._train_full(self.references, stage)
        self.named()
        self._train_short(self.references)

    def _explore(self, candidates: Iterable[Members]) -> None:
        most = max(int(self.asked.trials * _SHORT_SHARE) - 2 * len(self.references), 2)
        first = list(dict.fromkeys(m for m in candidates if m not in self.short))[: most // 4]
        drawn = [m for m in self._random(most, salt=1) if m not in self.short and m not in first]
        batch = [*first, *drawn][: max(most // 3, 1)]
        rng = np.random.default_rng([self.asked.seed, 0x5A])
        spent = 0
        while batch and spent < most:
            batch = batch[: most - spent]
            self._train_short(batch)
            spent += len(batch)
            batch = self._proposed(_BATCH, rng)

    def _halve(self) -> None:
        left = self.asked.trials - self.done
        stages = self.asked.stages
        # x + x/2 + x/4 … of candidates, beside the references in every stage but the first two, where they are known.
        shares = sum(0.5**s for s in range(stages))
        width = max(3, int((left - max(stages - 2, 0) * len(self.references)) / shares))
        alive = self._promising(width)
        for stage in range(stages):
            self._train_full([*alive, *self.references], stage)
            if stage + 1 < stages:
                keep = max(3, len(alive) // 2)
                alive = sorted([*alive, *self.references], key=self.loss)[:keep]

    # -- what to try -------------------------------------------------------------------------------

    def _random(self, count: int, *, salt: int) -> list[Members]:
        return random_federations(self.asked.feasible, count, seed=self.asked.seed, salt=salt)

    def _typical(self, count: int) -> list[Members]:
        """Random federations that are together as all are, by what is foreseen of them.

        A few of them are what ``random`` limits stand for, and where federations differ much a few drawn at once may
        lie far from the mean of all: of many draws the one is taken whose foreseen metrics do not.
        """
        foreseen = self.asked.foreseen
        if foreseen is None:
            return self._random(count, salt=0)
        drawn = self._random(_DRAWS * count, salt=2)
        draws = [drawn[at : at + count] for at in range(0, max(len(drawn) - count, 0) + 1, count)]
        values = foreseen.of([members for some in draws for members in some])
        scale = np.where(values.std(axis=0) > 0, values.std(axis=0), 1.0)
        away = ((values - values.mean(axis=0)) / scale).reshape(len(draws), len(draws[0]), -1).mean(axis=1)
        return draws[int(np.argmin((away**2).sum(axis=1)))]

    def surrogate(self) -> Surrogate:
        """What all rehearsals so far say, at the level of full ones."""
        goal, asked, count = self.asked.goal, self.asked, len(self.short) + sum(map(len, self.full.values()))
        if self._fitted is None or self._fitted[:2] != (count, goal):
            made = Surrogate(
                asked.known, self.observations(), goal, level=self.full_stages, foreseen=asked.foreseen
            )
            self._fitted = count, goal, made
        return self._fitted[2]

    @property
    def full_stages(self) -> tuple[int, ...]:
        """The stage of every full rehearsal."""
        return tuple(stage for stages in self.full.values() for stage in stages)

    def observations(self) -> list[Observation]:
        """All rehearsals so far, in an order that does not depend on which thread was first."""
        short = [(members, *one) for members, one in sorted(self.short.items(), key=lambda entry: entry[0])]
        full = [
            (members, stage, stages[stage])
            for members, stages in sorted(self.full.items(), key=lambda entry: entry[0])
            for stage in sorted(stages)
        ]
        names = self.asked.goal.metrics
        return [
            Observation(members, stage, [_seen(trained)[name] for name in names])
            for members, stage, trained in short + full
        ]

    def aim(self) -> Surrogate:
        """The surrogate as an objective within the tightened limits, as federations will be judged by them."""
        margins, tight = self.margins(self.references[0]), {}
        for name, bound in self.bounds().items():
            tight[name] = bound + (1.0 if parse(name).larger_is_better else -1.0) * margins.get(name, 0.0)
        return self.surrogate().within(tight)

    def _proposed(self, count: int, rng: np.random.Generator) -> list[Members]:
        """Federations that are best under effects drawn from what is still open."""
        surrogate = self.aim()
        sizes = list(self.asked.feasible)
        found: dict[Members, None] = {}
        for attempt in range(4 * count):
            size = sizes[attempt % len(sizes)]
            for members in self._search(surrogate.drawn(rng), size, _PROPOSAL_STARTS):
                if members not in self.short:
                    found[members] = None
                    break
            if len(found) == count or self.control.stopped():
                break
        return list(found)

    def _promising(self, count: int) -> list[Members]:
        """Candidates for full rehearsals: the best that were rehearsed short, and what the surrogate finds beyond."""
        surrogate = self.aim()
        those = dict.fromkeys(self.short)
        for size in self.asked.feasible:
            those |= dict.fromkeys(self._search(surrogate, size, _STARTS)[: max(count // 3, 2)])
        return sorted(those, key=lambda m: (surrogate.loss(m), m))[:count]

    def _search(self, surrogate: Surrogate, size: int, starts: int) -> list[Members]:
        """What descents find best: from the best federation rehearsed so far, and from random ones.

        Where limits cut, the loss has many hollows: on TravelTime one descent of three ends in the deepest.
        """
        limits = self.asked.feasible[size]
        problem = Problem(self.asked.clients, surrogate.rows(), surrogate, None)
        seen = [members for members in self.short if len(members) == size]
        begins: list[Ints | Members] = []
        if seen:
            losses = surrogate.evaluate(np.stack([problem.sums(members) for members in seen]))
            begins.append(seen[int(np.argmin(losses))])
        for _ in range(starts):
            self._chain += 1
            begins.append(start(limits, size, self.asked.seed, self._chain))
        quiet = Control(threads=1)
        with quiet:
            ends = [descend(problem, limits, members, control=quiet) for members in begins]
        found = [found for end in ends for found in ((end.loss, end.members), *end.neighbours)]
        return [members for _, members in rank(problem, found)]

    # -- training ----------------------------------------------------------------------------------

    def _names(self, members: Members) -> tuple[str, ...]:
        return tuple(self.asked.clients[i] for i in members)

    def _train_short(self, federations: Sequence[Members]) -> None:
        """Rehearse federations short that were not, each in one of the stages, in turn."""
        settings, records = self.asked.short_settings, self.asked.short_records
        wanted = [m for m in federations if m not in self.short]
        stages = self.asked.short_stages
        for at, stage in enumerate(stages):
            some = wanted[at :: len(stages)]
            tasks = [Task(self._names(m), settings, stage, records) for m in some]
            for members, trained in zip(some, self.trainings.train(tasks, self._tell), strict=True):
                self.short[members] = (stage, trained)

    def _train_full(self, federations: Sequence[Members], stage: int) -> None:
        wanted = [m for m in dict.fromkeys(federations) if stage not in self.full.get(m, {})]
        place = {self._names(m): m for m in wanted}

        def keep(task: Task, trained: Trained) -> None:
            self.full.setdefault(place[task.clients], {})[stage] = trained
            self._tell(task, trained)

        asked = self.asked
        # As in `rehearse`, models of the whole release look at gaps unless doubles are cut short.
        whole = asked.most_records is None
        tasks = [Task(self._names(m), asked.settings, stage, asked.most_records, whole) for m in wanted]
        self.trainings.train(tasks, keep)

    def _tell(self, task: Task, trained: Trained) -> None:
        """Progress: the best so far among full rehearsals, limits left aside."""
        self.done += 1
        goal, full = self.asked.goal, task.stage < _FIRST_SHORT
        known = full and all(name in trained.final for name in goal.weights)
        self.control.report(1, -goal.value(_seen(trained)) if known else math.inf)

    # -- judging -----------------------------------------------------------------------------------

    def performance(self, members: Members, role: str = "federation") -> Performance:
        """A federation's full rehearsals so far."""
        return performance(role, self._names(members), self.full[members])

    def values(self, members: Members) -> dict[str, float]:
        """The goal's metrics, by all rehearsals so far."""
        return self.surrogate().estimated(members)

    def bounds(self) -> dict[str, float]:
        """Limits as numbers; ``random`` is the mean of random federations, of which the references are a few.

        What the regression says of many stands for all of them: the mean of eight references alone was off by up to
        .03 of SPD on TravelTime, which has a standard deviation of .12 over federations.
        """
        limits, surrogate = self.asked.goal.limits, self.surrogate()
        if RANDOM not in limits.values():
            return {name: float(limit) for name, limit in limits.items()}
        if self._means is None or self._means[0] is not surrogate:
            self._means = surrogate, surrogate.mean(self._standing)
        means = self._means[1]
        return {name: means[name] if limit == RANDOM else float(limit) for name, limit in limits.items()}

    @cached_property
    def _standing(self) -> list[Members]:
        """Random federations that stand for all."""
        return self._random(_STANDING, salt=4)

    def margins(self, members: Members) -> dict[str, float]:
        """By how much each limit is tightened: standard errors of this federation's own interval."""
        if not self.asked.goal.limits or not self.asked.margin:
            return {}
        mine = self.performance(members)
        others = [self.performance(m, "random") for m in self.references if m != members and m in self.full]
        first = with_figures([mine, *others])[0]
        found = {}
        for name, limit in self.asked.goal.limits.items():
            if limit == RANDOM:
                error = compare(mine, others, name).error if others else math.nan
            else:
                figure = first.figure(name)
                error = max(figure.high - figure.value, figure.value - figure.low) / Z
            found[name] = self.asked.margin * error if math.isfinite(error) else 0.0
        return found

    def missing(self, members: Members) -> float:
        """By how much a federation misses its tightened limits, all together."""
        return sum(
            self.asked.goal.misses(self.values(members), self.bounds(), self.margins(members)).values()
        )

    def loss(self, members: Members) -> float:
        """Loss of a federation, limits tightened."""
        values, unit = self.values(members), self.surrogate().unit
        return self.asked.goal.loss(values, self.bounds(), self.margins(members), unit=unit)

    def breaks(self, members: Members) -> bool:
        """Whether a federation misses a limit, margins left aside."""
        return sum(self.asked.goal.misses(self.values(members), self.bounds(), {}).values()) > SLACK

    def ranked(self) -> list[tuple[float, Members]]:
        """Federations in full rehearsals, best first: those that keep the limits, as often rehearsed as any candidate.

        References are rehearsed in two stages from the start, which makes none of them better than a candidate.
        """
        candidates = [m for m in self.full if m not in self.references] or list(self.full)
        most = max(len(self.full[m]) for m in candidates)
        return sorted(
            ((self.loss(m), m) for m in self.full),
            key=lambda entry: (self.breaks(entry[1]), len(self.full[entry[1]]) < most, *entry),
        )


def _seen(trained: Trained) -> dict[str, float]:
    """Metrics of a rehearsal, gaps as a model of the whole release has them where one was trained."""
    return trained.final if trained.whole is None else {**trained.final, **trained.whole.final}
