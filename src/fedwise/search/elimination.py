"""Elimination: who may still be in the best federation, and so is worth asking again.

What the noise leaves open is drawn many times (`estimation.possible`). Each draw r has a best federation, and each
client i a signed margin g_ir: by how much the loss rises at least if a client outside it must join, or minus by how
much it rises if a member must leave. The chance π_i that i belongs to the best federation is P(g_i < 0) by the mean
and spread of its margins, or the share of draws that choose it, whichever is larger. Eliminated are the clients of the
smallest π_i, as long as the expected part of the best federation among them, Σ π_i / k, stays within the stated
chance. Where the releases show little of what tells clients apart, π_i is drawn to k/clients (`doubted`). There,
if fewer can be asked than the chance needs, it is those of whom most is gained (`gains`). A stage may be asked in
several waves (`waves`).
Derivation, and where it fails: docs/theory/stages.md.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar, Unpack

import msgspec
import numpy as np
import numpy.typing as npt

from ..deferred import Deferred
from ..errors import FedwiseError, Infeasible
from ..estimation import estimate
from ..estimation.estimates import Estimates
from ..estimation.possible import learned, possible
from ..objective.weights import Weights
from ..owner.shortlisted import Shortlist
from ..pool.intake import Scores
from ..pool.pool import Pool
from .annealing import Annealing
from .client_errors import known_share
from .constraints import Constraints, Limits
from .control import Control, Progress
from .entry import feasible_sizes, search_sizes, usual_objective, weights_of
from .gains import gains
from .greedy import Greedy
from .listing import Standings, ask_score, can_answer, listed, reasons
from .margins import margins
from .neighbourhood import descend
from .problem import PFL, Objective, Problem
from .scores import Told, told
from .seats import seat
from .sizes import Sizes, parse_sizes
from .waves import Asking, Turn, eliminate, next_turn

if TYPE_CHECKING:
    from scipy import special
else:
    special = Deferred("scipy.special")

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
T = TypeVar("T")

#: Part of the redraws that is used to estimate the loss above the best after the next stage.
_AFTER = 4
#: Counts of a pool up to which draws are made at the same time; beyond, their copies would fill the memory.
_SIDE_BY_SIDE = 5_000_000
#: Weight of "all clients are equally likely" where the releases tell nothing. Chosen on pools that are not reported.
_DOUBT = 0.6


def shortlist(
    pool: Pool,
    k: Sizes,
    *,
    chance: float = 0.05,
    objective: Objective | None = None,
    constraints: Constraints | None = None,
    weights: Weights | None = None,
    redraws: int = 40,
    seed: int = 0,
    threads: int | None = None,
    progress: Progress | None = None,
    **asking: Unpack[Asking],
) -> Shortlist:
    """Who may still be in the best federation, and is asked for the next stage of the plan.

    Parameters
    ----------
    pool
        Releases of a plan with stages: everybody's first, and later ones of those asked so far.
    k
        The size of the federation, or several: see `fedwise.select`.
    chance
        A member of the best federation is left out with at most this chance.
    objective, constraints, weights
        As for `fedwise.select`.
    redraws
        Redraws of the noise, at least 10.
    **asking
        ``size``, ``most``: how many clients to ask, or at most how many. The chance is then what comes out, and the
        shortlist says so. ``waves``: ask them in so many waves, each by all answers so far (1, or 4 where the plan
        asks for a score, which follows the first). `pool.shortlist` tells which wave was the last; `Pool.load` reads
        it from ``shortlist.json`` beside the releases.

    Raises
    ------
    PoolError
        The plan has no further stage.
    FedwiseError
        A number is out of bounds.
    Infeasible
        No federation satisfies the constraints.
    """
    size, most = asking.get("size"), asking.get("most")
    _check(chance, size, most, redraws, len(pool.clients))
    turn = next_turn(pool, asking.get("waves"))
    before = np.isin(pool.clients, turn.before)
    estimates, sizes = estimate(pool), parse_sizes(k, len(pool.clients))
    given = constraints or Constraints()
    rules, _ = seat(given, pool, max(sizes), asking=True)
    feasible = feasible_sizes(rules, estimates, sizes)
    usual = weights_of(pool, weights)
    goal = _check_goal(objective or usual_objective(estimates, usual, None), pool)
    with Control(threads=threads, progress=progress) as control:
        if turn.stage == pool.plan.scored:
            members = control.run(lambda: _shown(pool, estimates, goal, seed, control))
            return ask_score(pool, turn, estimates, usual, rules, members, sizes=sizes, seed=seed)
        trial = _Trial(estimates, goal, feasible, seed, control, pool.scores)
        found = control.run(lambda: trial.standings(redraws))
        able = can_answer(pool, turn.stage)
        # Those who answered an earlier wave are known better; the doubt is about the others, whatever they scored.
        known = known_share(estimates, usual, able & ~before if turn.before else None)
        found = doubted(found, known, feasible[min(feasible)], min(feasible))
        worth = control.run(lambda: trial.gains(able & ~before))
        ask = partial(
            eliminate, found.chance, able, allowed=chance * min(feasible), size=size, most=most, least=min(feasible),
            before=before, waves=turn.left,
        )  # fmt: skip
        asked = ask(gains=worth)
        if not np.array_equal(asked, ask(gains=None)):  # else the chances explain it
            found = found._replace(gain=worth)
        after = control.run(lambda: trial.regret_after(pool, asked, before, turn, rules, redraws))
    left_out = float(found.chance[~asked].sum()) / min(feasible)
    bounded = size is not None or most is not None or turn.left > 1
    return listed(
        pool, turn, asked, sizes=tuple(feasible), chance=min(left_out, 1.0) if bounded else chance, bounded=bounded,
        redraws=redraws, regret=found.regret, regret_after=after, objective=goal.name, seed=seed,
        constraints=msgspec.to_builtins(rules.given()),
        standings=reasons(pool, turn, found, asked, rules, given.exclude),
    )  # fmt: skip


def doubted(found: Standings, known: float, limits: Limits, size: int) -> Standings:
    """Standings whose chances count that the prior behind the draws is itself estimated from the noise.

    They are drawn to that of any client, (size − included)/candidates, by the weight 0.6·(1 − known)²: hardly where
    the releases show what tells clients apart, and by more than a third where they show a fifth of it. Who is likelier
    than whom does not change.
    """
    weight = _DOUBT * (1.0 - known) ** 2
    chance = found.chance.copy()
    free = np.setdiff1d(limits.free, limits.fixed)
    alike = (size - len(limits.fixed)) / max(len(free), 1)
    chance[free] += weight * (alike - chance[free])
    return found._replace(chance=chance)


def _shown(pool: Pool, estimates: Estimates, goal: Objective, seed: int, control: Control) -> Ints:
    """Whose tables show what to score by: of those who went ahead the half that goes best together, else everybody.

    The slope that is wanted is that at the best federation, and half of them are nearer to it than all.
    """
    last = len(pool.plan.staged)
    ahead = [spending.client for spending in pool.spendings if spending.stage == last]
    if len(ahead) < 2:
        return np.arange(len(pool.clients))
    size = len(ahead) // 2
    others = tuple(name for name in pool.clients if name not in ahead)
    feasible = feasible_sizes(Constraints(exclude=others), estimates, (size,))
    found = search_sizes(Problem.of(estimates, copy.copy(goal)), feasible, Greedy("exchange"), seed, control)
    return np.array(found[0].outcome.members)


class _Trial:
    """Redraws of a pool, each searched from the selection that the pool itself gives."""

    def __init__(
        self,
        estimates: Estimates,
        goal: Objective,
        feasible: dict[int, Limits],
        seed: int,
        control: Control,
        scores: Scores | None = None,
    ) -> None:
        self.goal, self.feasible, self.seed, self.control = goal, feasible, seed, control
        self.estimates = estimates
        self.problem = Problem.of(estimates, copy.copy(goal))
        searched = control.run(lambda: search_sizes(self.problem, feasible, Annealing(), seed, control))
        self.best = {entry.size: entry.outcome.members for entry in searched}
        self.chosen = min(searched, key=lambda entry: entry.outcome.loss).outcome.members
        #: What answers to a score say beside the tables; nothing where none was asked.
        self.told: Told | None = None
        if scores is not None and isinstance(goal, PFL) and estimates.posterior is not None:
            self.told = told(estimates, scores, np.array(self.chosen), goal.weights)

    def standings(self, redraws: int) -> Standings:
        """Margins of every client over draws of what the noise leaves open, and the regret of the selection."""
        drawn = self._map(self._draw, redraws)
        signed = np.stack([margin for margin, _ in drawn])
        regret = np.array([above for _, above in drawn])
        mean, spread = signed.mean(axis=0), signed.std(axis=0, ddof=1)
        share = (signed < 0).mean(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            tail = special.stdtr(redraws - 1, -mean / spread)
        smooth = np.where(spread > 0, tail, share)
        if self.told is None:
            return Standings(np.maximum(share, smooth), share, mean, spread, float(regret.mean()))
        # Draws of the tables do not know the scores: margins move by what these say, and spread by what they leave.
        mean, spread = mean + self.told.shift, spread * self.told.left
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(spread > 0, special.stdtr(redraws - 1, -mean / spread), share)
        return Standings(share, share, mean, spread, float(regret.mean()))

    def gains(self, among: Flags) -> Floats | None:
        """By how much asking each client may lower the loss, where that decides. Margins are those in the estimates."""
        limits = self.feasible[len(self.chosen)]
        margin = margins(self.problem, limits, self.chosen, control=self.control)
        return gains(self.estimates, self.goal, self.chosen, margin, among, self.told)

    def _draw(self, number: int, control: Control) -> tuple[Floats, float]:
        """Margins of every client in one draw, and the loss of the present selection above the best."""
        problem = Problem.of(possible(self.estimates, self._rng(19, number)), copy.copy(self.goal))
        size, members = self._search(problem, number, control)
        above = max(problem.loss(self.chosen) - problem.loss(members), 0.0)
        return margins(problem, self.feasible[size], members, control=control), above

    def regret_after(
        self, pool: Pool, asked: Flags, before: Flags, turn: Turn, rules: Constraints, redraws: int
    ) -> float | None:
        """Mean loss above the best of a selection among those asked, once they have answered; some of the redraws.

        ``None`` where no federation among them satisfies the constraints.
        """
        sigmas, redraws = _after(pool, asked & ~before, turn.stage), max(redraws // _AFTER, 2)
        # Before the last wave anybody may still be asked.
        among = asked if turn.left == 1 else np.ones_like(asked)
        out = tuple(name for name, stays in zip(pool.clients, among, strict=True) if not stays)
        rules = replace(rules, exclude=(*rules.exclude, *(name for name in out if name not in rules.include)))
        try:
            narrower = feasible_sizes(rules, self.estimates, tuple(self.feasible))
        except Infeasible:
            return None

        def above(number: int, control: Control) -> float:
            rng = self._rng(23, number)
            true = possible(self.estimates, rng)
            after = Problem.of(learned(self.estimates, true, sigmas, rng), copy.copy(self.goal))
            problem = Problem.of(true, copy.copy(self.goal))
            _, best = self._search(problem, number, control)
            return max(problem.loss(self._among(after, narrower, control)) - problem.loss(best), 0.0)

        return float(np.mean(self._map(above, redraws)))

    def _map(self, work: Callable[[int, Control], T], redraws: int) -> list[T]:
        """`work` for every redraw: at the same time, or for large pools one by one, each with all threads."""
        if self.estimates.cells.size > _SIDE_BY_SIDE:
            return [work(number, self.control) for number in range(redraws)]
        return self.control.map(lambda number: work(number, self.control.alone()), range(redraws))

    def _among(self, problem: Problem, feasible: dict[int, Limits], control: Control) -> tuple[int, ...]:
        """The best federation that limits narrower than the pool's allow."""
        searched = search_sizes(problem, feasible, Greedy("exchange"), self.seed, control)
        return min(searched, key=lambda entry: entry.outcome.loss).outcome.members

    def _rng(self, stream: int, number: int) -> np.random.Generator:
        return np.random.default_rng([self.seed & 0xFFFFFFFFFFFFFFFF, stream, number])

    def _search(self, problem: Problem, number: int, control: Control) -> tuple[int, tuple[int, ...]]:
        """Size and members of the best federation of one redraw: a short search, and a descent from the selection."""
        best: tuple[float, int, tuple[int, ...]] | None = None
        for size, limits in self.feasible.items():
            found = descend(problem, limits, self.best[size], control=control)
            loss, members = found.loss, found.members
            if problem.spec is not None:
                short = Annealing(chains=1, steps=1000)
                other = short.search(problem, limits, size, seed=self.seed + number + 1, control=control)
                if other.loss < loss:
                    loss, members = other.loss, other.members
            if best is None or loss < best[0]:
                best = loss, size, members
        assert best is not None
        return best[1], best[2]


def _check_goal(goal: Objective, pool: Pool) -> Objective:
    """A score is one along the slope of the loss, and serves no other objective."""
    if pool.plan.scored is not None and not isinstance(goal, PFL):
        raise FedwiseError(
            f"objective must be the loss where the plan asks for a score, got {goal.name}; leave it out, or make "
            "a plan without score"
        )
    if pool.plan.scored is not None and isinstance(goal, PFL) and goal.weights != pool.plan.weights:
        raise FedwiseError(
            "weights must be the plan's where it asks for a score, got others; make a plan with these weights"
        )
    return goal


def _after(pool: Pool, asked: Flags, stage: int) -> Floats:
    """Noise of every client and table once the asked clients have answered the stage."""
    more = np.array(pool.plan.stage(stage).sigmas) ** -2.0
    return np.asarray((pool.sigmas**-2.0 + asked[:, None] * more) ** -0.5)


def _check(chance: float, size: int | None, most: int | None, redraws: int, clients: int) -> None:
    if not 0 < chance < 1:
        raise FedwiseError(f"chance must lie between 0 and 1, got {chance:g}; 0.05 is a common choice")
    for name, value in (("size", size), ("most", most)):
        if value is not None and not 1 <= value <= clients:
            raise FedwiseError(f"{name} must be between 1 and the {clients} clients of the pool, got {value}")
    if size is not None and most is not None:
        raise FedwiseError("size must not be given with most; give the number, or a bound")
    if redraws < 10:
        raise FedwiseError(f"redraws must be at least 10, got {redraws}")
