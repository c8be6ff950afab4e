"""Association: how strongly the two variables of a table depend on each other, measured and adjusted.

All tables here are proportions. Strength is changed along one path, p ∝ p·(pattern)^t at fixed marginals,
with the `ratio` p_xy / (p_x p_y) of the pool: t > 0 makes every odds ratio more extreme, empty cells stay empty.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from ..objective.information import LOG2E, from_sums, information, ratio, xlogx
from .entropy import debiased
from .fitting import fit, fit_in_place, margin_factors

Floats = npt.NDArray[np.float64]

#: Steps of the strength t from −1 to 0, and as many from 0 to 1.
_STEPS = 2048
#: Furthest that a mixture's strength is moved, and the relative precision asked of it.
_FURTHEST, _NEAR = 0.5, 1e-3


def nats(table: Floats) -> float:
    """Mutual information of a table of proportions, in nats."""
    return information(table) / LOG2E


def nats_of_noisy(table: Floats, x: Floats, y: Floats, *, scale: float) -> float:
    """Mutual information of proportions with noise of standard deviation `scale`, without its bias.

    The marginals `x`, `y` are taken as known. May be negative, as an unbiased estimate must.
    """
    joint = LOG2E * np.sum(debiased(table, scale))
    return float(from_sums(joint, xlogx(x).sum() + xlogx(y).sum(), 1.0)) / LOG2E


def direction(table: Floats) -> Floats:
    """Unit step along which the association of a table grows while its marginals and empty cells stay.

    The derivative of p·ratio^t at fixed marginals: p·(log ratio − α_x − β_y).
    """
    logs = np.log(ratio(table))
    down, across = margin_factors(table, table * logs)
    growth = table * (logs - down[:, None] - across)
    length = float(np.linalg.norm(growth))
    return growth / length if length > 1e-12 else np.zeros_like(growth)


def strengthen(table: Floats, goal: float) -> Floats:
    """Give a shrunk table the information `goal` (nats): same marginals, same pattern, t in [−1, 1].

    Information is convex, so a posterior mean holds too little of it.
    """
    x, y = table.sum(axis=1)[None], table.sum(axis=0)[None]
    pattern = ratio(table)

    def moved(t: float) -> Floats:
        return np.asarray(fit_in_place((table * pattern**t)[None], x, y)[0])

    # The last step of 2/4096 that is still too weak. Information grows with about the square of the strength 1 + t,
    # so the next step to try is where its root would meet the goal's; halving ends what that does not find.
    low, high, goal_root = 0, 2 * _STEPS, math.sqrt(max(goal, 0.0))
    low_root, high_root = 0.0, math.inf
    middle = _STEPS
    for trial in range(40):
        found = nats(moved(middle / _STEPS - 1.0))
        if found < goal:
            low, low_root = middle, math.sqrt(max(found, 0.0))
        else:
            high, high_root = middle, math.sqrt(max(found, 0.0))
        if high - low == 1:
            break
        middle = (low + high) // 2
        if trial < 8:
            if high_root == math.inf:
                place = low * goal_root / low_root if low_root > 0 else middle
            else:
                place = low + (high - low) * (goal_root - low_root) / max(high_root - low_root, 1e-300)
            # One step beyond the guess, to the other side of the goal.
            beyond = math.floor(place) + (1 if found < goal else 0)
            middle = min(max(beyond, low + 1), high - 1)
    return moved(low / _STEPS - 1.0)


def mix_to(
    tables: Floats, pattern: Floats, x: Floats, y: Floats, *, share: Floats, goal: float, give: Floats
) -> Floats:
    """Change the strength of each client's table by t·give so that their mixture has information `goal`.

    Parameters
    ----------
    tables
        Shape (clients, a, b), with marginals `x` (clients, a) and `y` (clients, b).
    share
        Shape (clients,): the mixture.
    give
        Shape (clients,), in [0, 1]: how far each client's strength may be moved; 0 for one that is known.
    """
    if not give.any():
        return tables
    before, at = nats(np.tensordot(share, tables, axes=1)), 0.0
    # Information grows with the square of the strength; the secant then corrects this first guess.
    t = min(max(math.sqrt(max(goal, 0.0) / before) - 1.0, -_FURTHEST), _FURTHEST)
    moved = tables
    for _ in range(4):
        if t == at:
            break
        moved = fit(tables * pattern ** (t * give[:, None, None]), x, y)
        after = nats(np.tensordot(share, moved, axes=1))
        if (
            abs(after - goal) <= _NEAR * abs(goal)
            or abs(after - before) <= 1e-9 * abs(goal)
            or after == before
        ):
            break
        slope = (after - before) / (t - at)
        at, before = t, after
        t = min(max(t + (goal - after) / slope, -_FURTHEST), _FURTHEST)
    return moved
