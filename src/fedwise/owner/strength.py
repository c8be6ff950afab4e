"""Strength: what a release of so many rows tells under a plan's noise."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..planning import Plan

#: A rate that is only known within this, or more tables drowned in noise than this share, tells little.
_LOOSE_RATE = 0.05
_DROWNED = 0.5


class Strength(NamedTuple):
    """How far the target's rate is known (half of a 95% interval), and tables whose noise exceeds the average count."""

    rate: float
    drowned: int
    weak: bool


def told(plan: Plan, rows: int) -> Strength:
    """What a release of `rows` rows tells.

    A level of the target is the sum of its cells in a table, so its count has the noise σ √(cells of that level); the
    target's rate is that count over the total. The table with the least of it is taken; of several targets, the one
    that is known least.
    """
    noise = []
    for name in (plan.schema.names[position] for position in plan.schema.targets):
        own = [table for table in plan.tables if name in table.pair]
        noise.append(min(t.sigma * np.sqrt(t.shape[1 - t.pair.index(name)]) for t in own) if own else np.inf)
    cells = np.array([np.prod(table.shape) for table in plan.tables])
    sigmas = np.array([table.sigma for table in plan.tables])
    drowned = int((sigmas > rows / cells).sum())
    # The rate is yes/(yes + no), each with that noise; at a rate of one half its error is noise/(√2 rows).
    rate = 1.96 * max(noise) / (np.sqrt(2.0) * max(rows, 1))
    return Strength(
        float(min(rate, 1.0)), drowned, bool(rate > _LOOSE_RATE or drowned > _DROWNED * len(sigmas))
    )
