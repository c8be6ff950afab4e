"""Association: how strongly the two variables of a table depend on each other, measured and adjusted.

All tables here are proportions. Strength is changed along one path, p ∝ p·(pattern)^t at fixed marginals,
with the `ratio` p_xy / (p_x p_y) of the pool: t > 0 makes every odds ratio more extreme, empty cells stay empty.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from ..objective.information import LOG2E, from_sums, informations, ratio, xlogx
from .entropy import debiased
from .fitting import fit, fit_in_place, margin_factors

Floats = npt.NDArray[np.float64]

#: Steps of the strength t from −1 to 0, and as many from 0 to 1.
_STEPS = 2048
#: Furthest that a mixture's strength is moved, and the relative precision asked of it.
_FURTHEST, _NEAR = 0.5, 1e-3


def nats(tables: Floats) -> Floats:
    """Mutual information of tables of proportions (…, a, b), in nats. Shape (…)."""
    return np.asarray(informations(tables) / LOG2E)


def nats_of_noisy(tables: Floats, x: Floats, y: Floats, *, scale: float | Floats) -> Floats:
    """Mutual information of proportions with noise of standard deviation `scale`, without its bias.

    The marginals `x`, `y` are taken as known. May be negative, as an unbiased estimate must. Tables (…, a, b) have
    marginals (…, a) and (…, b) and scales (…).
    """
    joint = LOG2E * np.sum(debiased(tables, np.asarray(scale)[..., None, None]), axis=(-1, -2))
    sides = xlogx(x).sum(axis=-1) + xlogx(y).sum(axis=-1)
    return np.asarray(from_sums(joint, sides, np.ones_like(joint)) / LOG2E)


def direction(tables: Floats) -> Floats:
    """Unit step along which the association of tables (…, a, b) grows while their marginals and empty cells stay.

    The derivative of p·ratio^t at fixed marginals: p·(log ratio − α_x − β_y).
    """
    logs = np.log(ratio(tables))
    down, across = margin_factors(tables, tables * logs)
    growth = tables * (logs - down[..., :, None] - across[..., None, :])
    length = np.linalg.norm(growth, axis=(-2, -1), keepdims=True)
    return np.asarray(np.divide(growth, length, out=np.zeros_like(growth), where=length > 1e-12))


def strengthen(tables: Floats, goals: float | Floats) -> Floats:
    """Give shrunk tables (…, a, b) the information `goals` (nats): same marginals, same pattern, t in [−1, 1].

    Information is convex, so a posterior mean holds too little of it.
    """
    shape = tables.shape
    found = _Strength(tables.reshape(-1, *shape[-2:]), np.asarray(goals, dtype=np.float64).reshape(-1))
    return found.strengthened().reshape(shape)


class _Strength:
    """The last step of 2/4096 from t = −1 to 1 whose information is still below its goal, of several tables.

    Information grows with about the square of the strength 1 + t, so the next step to try is where its root would
    meet the goal's; halving ends what that does not find.
    """

    def __init__(self, tables: Floats, goals: Floats) -> None:
        self.tables, self.goals = tables, goals
        self.pattern = ratio(tables)
        self.x, self.y = tables.sum(axis=-1), tables.sum(axis=-2)

    def strengthened(self) -> Floats:
        count = len(self.tables)
        low, high = [0] * count, [2 * _STEPS] * count
        low_root, high_root = [0.0] * count, [math.inf] * count
        goal_root = np.sqrt(np.maximum(self.goals, 0.0)).tolist()
        middle = [_STEPS] * count
        active = list(range(count))
        for trial in range(40):
            found = nats(self._moved(active, [middle[i] for i in active]))
            root = np.sqrt(np.maximum(found, 0.0)).tolist()
            for i, weak, own in zip(active, (found < self.goals[active]).tolist(), root, strict=True):
                if weak:
                    low[i], low_root[i] = middle[i], own
                else:
                    high[i], high_root[i] = middle[i], own
                middle[i] = (low[i] + high[i]) // 2
                if trial >= 8 or high[i] - low[i] == 1:
                    continue
                if high_root[i] == math.inf:
                    place = low[i] * goal_root[i] / low_root[i] if low_root[i] > 0 else middle[i]
                else:
                    rise = max(high_root[i] - low_root[i], 1e-300)
                    place = low[i] + (high[i] - low[i]) * (goal_root[i] - low_root[i]) / rise
                # One step beyond the guess, to the other side of the goal.
                beyond = math.floor(place) + (1 if weak else 0)
                middle[i] = min(max(beyond, low[i] + 1), high[i] - 1)
            active = [i for i in active if high[i] - low[i] > 1]
            if not active:
                break
        return self._moved(list(range(count)), low)

    def _moved(self, at: list[int], steps: list[int]) -> Floats:
        """Some of the tables with the strength of these steps."""
        moved = self.tables[at]
        for table, i, step in zip(moved, at, steps, strict=True):
            # One power at a time: numpy rounds that of a stack in another way for some exponents.
            table *= self.pattern[i] ** (step / _STEPS - 1.0)
        return fit_in_place(moved, self.x[at], self.y[at])


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
    before, at = float(nats(mixed(share, tables))), 0.0
    # Information grows with the square of the strength; the secant then corrects this first guess.
    t = min(max(math.sqrt(max(goal, 0.0) / before) - 1.0, -_FURTHEST), _FURTHEST)
    moved = tables
    for _ in range(4):
        if t == at:
            break
        moved = fit(tables * pattern ** (t * give[:, None, None]), x, y)
        after = float(nats(mixed(share, moved)))
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


def mixed(share: Floats, tables: Floats) -> Floats:
    """Weighted sum over clients: shares (…, clients) of tables (…, clients, a, b)."""
    clients, a, b = tables.shape[-3:]
    flat = tables.reshape(*tables.shape[:-3], clients, a * b)
    return np.asarray((share[..., None, :] @ flat).reshape(*tables.shape[:-3], a, b))
