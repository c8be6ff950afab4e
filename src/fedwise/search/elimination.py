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
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, Unpack

import msgspec
import numpy as np
import numpy.typing as npt

from ..deferred import Deferred
from ..errors import FedwiseError, Infeasible
from ..estimation import estimate
from ..estimation.estimates import Estimates
from ..estimation.possible import learned, possible
from ..objective.weights import Weights
from ..owner.shortlisted import Shortlist, Standing
from ..pool.pool import Pool
from .annealing import Annealing
from .client_errors import known_share
from .constraints import Constraints, Limits
from .control import Control, Progress
from .entry import feasible_sizes, search_sizes, usual_objective, weights_of
from .gains import gains
from .greedy import Greedy
from .margins import margins
from .neighbourhood import descend
from .problem import Objective, Problem
from .seats import seat
from .sizes import Sizes, parse_sizes
from .waves import Asking, Turn, eliminate, next_turn

if TYPE_CHECKING:
    from scipy import special
else:
    special = Deferred("scipy.special")

Floats = npt.NDArray[np.float64]
T = TypeVar("T")

#: Part of the redraws that is used to estimate the loss above the best after the next stage.
_AFTER = 4
#: Counts of a pool up to which draws are made at the same time; beyond, their copies would fill the memory.
_SIDE_BY_SIDE = 5_000_000
#: Weight of "all clients are equally likely" where the releases tell nothing. Chosen on pools that are not reported.
_DOUBT = 0.6


class Standings(NamedTuple):
    """What redraws say of every client: chance to be in the best, share of redraws, mean margin and its spread."""

    chance: Floats
    share: Floats
    margin: Floats
    spread: Floats
    #: Mean loss of the present selection above the best.
    regret: float
    #: By how much asking each may lower the loss, where that decided who is asked.
    gain: Floats | None = None


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
        shortlist says so. ``waves``: ask them in so many waves, each by all answers so far. `pool.shortlist` tells
        which wave was the last; `Pool.load` reads it from ``shortlist.json`` beside the releases.

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
    turn = next_turn(pool, asking.get("waves", 1))
    before = np.isin(pool.clients, turn.before)
    estimates = estimate(pool)
    sizes = parse_sizes(k, len(pool.clients))
    given = constraints or Constraints()
    rules, _ = seat(given, pool, max(sizes))
    feasible = feasible_sizes(rules, estimates, sizes)
    usual = weights_of(pool, weights)
    goal = objective or usual_objective(estimates, usual, None)
    with Control(threads=threads, progress=progress) as control:
        trial = _Trial(estimates, goal, feasible, seed, control)
        found = control.run(lambda: trial.standings(redraws))
        able = np.array([_able(pool, i, turn.stage) for i in range(len(pool.clients))])
        # Those who answered an earlier wave are known better; the doubt is about the others.
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
        left_out = float(found.chance[~asked].sum()) / min(feasible)
        sigmas = _after(pool, asked & ~before, turn.stage)
        # Before the last wave anybody may still be asked.
        among = asked if turn.left == 1 else np.ones_like(asked)
        after = control.run(lambda: trial.regret_after(pool, among, sigmas, rules, max(redraws // _AFTER, 2)))
    bounded = size is not None or most is not None or turn.left > 1
    return _listed(
        pool, turn, asked, sizes=tuple(feasible), chance=min(left_out, 1.0) if bounded else chance, bounded=bounded,
        redraws=redraws, regret=found.regret, regret_after=after, objective=goal.name, seed=seed,
        constraints=msgspec.to_builtins(rules.given()),
        standings=_reasons(pool, turn, found, asked, rules, given.exclude),
    )  # fmt: skip


def _listed(pool: Pool, turn: Turn, asked: npt.NDArray[np.bool_], **rest: Any) -> Shortlist:
    """The shortlist of those asked in earlier waves or now, and of the plan they answered."""
    names = np.array(pool.clients)
    return Shortlist(
        plan_digest=pool.plan.digest,
        schema_digest=pool.plan.schema_digest,
        stage=turn.stage,
        epsilon=pool.plan.stage(turn.stage).epsilon,
        delta=pool.plan.delta,
        clients=tuple(names[asked].tolist()),
        wave=turn.wave(tuple(names[asked & ~np.isin(names, turn.before)].tolist())) or msgspec.UNSET,
        **rest,
    )


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


class _Trial:
    """Redraws of a pool, each searched from the selection that the pool itself gives."""

    def __init__(
        self,
        estimates: Estimates,
        goal: Objective,
        feasible: dict[int, Limits],
        seed: int,
        control: Control,
    ) -> None:
        self.goal, self.feasible, self.seed, self.control = goal, feasible, seed, control
        self.estimates = estimates
        self.problem = Problem.of(estimates, copy.copy(goal))
        searched = control.run(lambda: search_sizes(self.problem, feasible, Annealing(), seed, control))
        self.best = {entry.size: entry.outcome.members for entry in searched}
        self.chosen = min(searched, key=lambda entry: entry.outcome.loss).outcome.members

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
        return Standings(np.maximum(share, smooth), share, mean, spread, float(regret.mean()))

    def gains(self, among: npt.NDArray[np.bool_]) -> Floats | None:
        """By how much asking each client may lower the loss, where that decides. Margins are those in the estimates."""
        limits = self.feasible[len(self.chosen)]
        margin = margins(self.problem, limits, self.chosen, control=self.control)
        return gains(self.estimates, self.goal, self.chosen, margin, among)

    def _draw(self, number: int, control: Control) -> tuple[Floats, float]:
        """Margins of every client in one draw, and the loss of the present selection above the best."""
        problem = Problem.of(possible(self.estimates, self._rng(19, number)), copy.copy(self.goal))
        size, members = self._search(problem, number, control)
        above = max(problem.loss(self.chosen) - problem.loss(members), 0.0)
        return margins(problem, self.feasible[size], members, control=control), above

    def regret_after(
        self, pool: Pool, among: npt.NDArray[np.bool_], sigmas: Floats, rules: Constraints, redraws: int
    ) -> float | None:
        """Mean loss above the best of a selection among some clients, once the noise has come down to `sigmas`.

        ``None`` where no federation among them satisfies the constraints.
        """
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


def _after(pool: Pool, asked: npt.NDArray[np.bool_], stage: int) -> Floats:
    """Noise of every client and table once the asked clients have answered the stage."""
    more = np.array(pool.plan.stage(stage).sigmas) ** -2.0
    return np.asarray((pool.sigmas**-2.0 + asked[:, None] * more) ** -0.5)


def _able(pool: Pool, i: int, stage: int) -> bool:
    """Whether a client answered the stage before, and its owner allows more."""
    if not pool.spendings:
        return True
    spending = pool.spendings[i]
    return spending.stage == stage - 1 and all(part.asked is None for part in spending.parts)


def _reasons(
    pool: Pool,
    turn: Turn,
    found: Standings,
    asked: npt.NDArray[np.bool_],
    rules: Constraints,
    excluded: tuple[str, ...],
) -> tuple[Standing, ...]:
    """Every client with its reason, the asked ones and the largest chances, or gains, first."""
    first = found.chance if found.gain is None else found.gain
    order = np.lexsort((np.arange(len(asked)), -found.chance, -first, ~asked))
    spent = pool.epsilons
    return tuple(
        Standing(
            pool.clients[i],
            bool(asked[i]),
            float(found.share[i]),
            float(spent[i]),
            "its tables hold no more than noise, or its records look spoilt"
            if pool.clients[i] in set(rules.exclude) - set(excluded)
            else _reason(pool, i, turn, found, bool(asked[i]), rules),
        )
        for i in order.tolist()
    )


def _reason(pool: Pool, i: int, turn: Turn, found: Standings, asked: bool, rules: Constraints) -> str:
    name, stage = pool.clients[i], turn.stage
    if name in turn.before:
        answered = bool(pool.spendings) and pool.spendings[i].stage >= stage
        return "answered in an earlier wave" if answered else "asked in an earlier wave, no answer so far"
    if name in rules.include:
        return "must be included"
    if name in rules.exclude:
        return "excluded by the constraints"
    if not _able(pool, i, stage):
        spending = pool.spendings[i]
        if spending.stage < stage - 1:
            return f"did not answer stage {stage - 1}"
        return f"its owner allows no more than epsilon {spending.epsilon:g}"
    if found.gain is not None:
        worth = f"asking it should lower the loss by {found.gain[i]:.4f}"
        return f"{worth}; in the best federation in {found.share[i]:.0%} of redraws"
    if asked and found.share[i] >= 0.5:
        return f"in the best federation in {found.share[i]:.0%} of redraws"
    sign = "raises" if found.margin[i] >= 0 else "lowers"
    effect = f"joining {sign} the loss by {abs(found.margin[i]):.4f}, give or take {found.spread[i]:.4f}"
    return f"in the best federation in {found.share[i]:.0%} of redraws; {effect}"


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
