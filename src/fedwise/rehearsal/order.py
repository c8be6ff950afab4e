"""Order: how sure the order of rehearsed federations is, and what else is near."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..certificate import in_words
from .goal import Goal
from .performance import Performance, paired_spread

_DRAWS = 4_000


class Order(NamedTuple):
    """What the rehearsals leave open about the best of some federations.

    `chance` is that of another one being truly better, `regret` the expected value lost to the best of them,
    `chances` that of each being the best, and `error` the standard error of the difference of two; NaN where too few
    stages were rehearsed.
    """

    chance: float
    regret: float
    chances: tuple[float, ...]
    error: float

    def sentence(self, goal: Goal, others: int) -> str:
        """In words."""
        like = "rehearsed as often" + (" and keeps the limits as well" if goal.limits else "")
        if not others:
            return f"No other federation was {like}, so nothing is known about the order."
        if math.isnan(self.chance):
            return "The order is not known: fewer than two federations were rehearsed in two stages."
        words = in_words(self.chance)
        lost = (
            ""
            if self.regret < 5e-5
            else f"; expected to be lost: {self.regret:.2g} of {', '.join(goal.weights)}"
        )
        who = "The one other" if others == 1 else f"One of the {others} others"
        like = like if others == 1 else like.replace("keeps", "keep")
        was = "was" if others == 1 else "were"
        return (
            f"{who} that {was} {like} is truly better with a chance "
            f"{'of ' if words.startswith('about') else ''}{words}{lost}."
        )


def order_of(
    performances: Sequence[Performance], goal: Goal, *, means: Sequence[float] | None = None, seed: int = 0
) -> Order:
    """The order of federations of which the first was chosen, by what is maximised alone.

    True values are drawn around `means`, by default those over the stages that all share. A mean errs by what its
    stages differ by and by the released noise, about as large, which no number of stages averages out.
    """
    shared = set.intersection(*(set(one.stages) for one in performances)) if performances else set()
    if len(performances) < 2 or len(shared) < 2:
        return Order(math.nan, math.nan, (), math.nan)
    sums = [
        Performance(
            role=one.role, clients=one.clients, stages=one.stages,
            values={"goal": tuple(
                sum(weight * one.values[name][at] for name, weight in goal.weights.items())
                for at in range(len(one.stages))
            )},
        )
        for one in performances
    ]  # fmt: skip
    spread = paired_spread(sums, "goal")
    if means is None:
        means = [float(np.mean([one.values["goal"][one.stages.index(s)] for s in shared])) for one in sums]
    error = spread * math.sqrt(1 + 1 / len(shared))
    drawn = np.random.default_rng([seed, 0x0DE5]).standard_normal((_DRAWS, len(sums))) * error + np.array(
        means
    )
    best = drawn.argmax(axis=1)
    chances = tuple(float(np.mean(best == at)) for at in range(len(sums)))
    return Order(
        1.0 - chances[0], float(np.mean(drawn.max(axis=1) - drawn[:, 0])), chances, error * math.sqrt(2.0)
    )
