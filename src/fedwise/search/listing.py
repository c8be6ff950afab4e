"""Listing: a shortlist as it is written, who is asked and why."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ..estimation.estimates import Estimates
from ..objective.weights import Weights
from ..owner.shortlisted import Shortlist, Standing
from ..pool.pool import Pool
from .constraints import Constraints
from .problem import PFL
from .scores import make_score
from .waves import Turn

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


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


def listed(pool: Pool, turn: Turn, asked: Flags, **rest: Any) -> Shortlist:
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


def ask_score(
    pool: Pool,
    turn: Turn,
    estimates: Estimates,
    weights: Weights,
    rules: Constraints,
    members: npt.NDArray[np.int64],
    *,
    sizes: tuple[int, ...],
    seed: int,
) -> Shortlist:
    """Everybody who was not asked for the tables again is asked for a score; nobody is eliminated."""
    asked = can_answer(pool, turn.stage) & ~np.isin(pool.clients, (*turn.before, *rules.exclude))
    why = {
        True: "asked for the sum of a score",
        False: "excluded, asked for its tables already, or its owner allows no more",
    }
    spent = pool.epsilons
    standings = tuple(
        Standing(pool.clients[i], bool(asked[i]), 0.0, float(spent[i]), why[bool(asked[i])])
        for i in np.argsort(~asked, kind="stable").tolist()
    )
    return listed(
        pool, turn, asked, sizes=sizes, chance=0.0, bounded=False, redraws=0, regret=0.0, regret_after=None,
        objective=PFL(weights).name, seed=seed, constraints=msgspec.to_builtins(rules.given()), standings=standings,
        ahead=turn.before, score=make_score(estimates, members, weights, seed=seed),
    )  # fmt: skip


def can_answer(pool: Pool, stage: int) -> Flags:
    """Shape (clients,): who answered a stage before this one, and whose owner allows more."""
    return np.array([_able(pool, i, stage) for i in range(len(pool.clients))])


def _able(pool: Pool, i: int, stage: int) -> bool:
    """Whether a client answered the stage before, and its owner allows more."""
    if not pool.spendings:
        return True
    spending = pool.spendings[i]
    return spending.stage in pool.plan.before(stage) and all(part.asked is None for part in spending.parts)


def reasons(
    pool: Pool,
    turn: Turn,
    found: Standings,
    asked: Flags,
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
        if spending.stage not in pool.plan.before(stage):
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
