"""Entropy of noisy counts, without the bias that noise adds.

f(c) = c·ln c is convex, so E f(c + ξ) > f(c), most of all near zero, where a table has most of its
cells. The function here goes the other way: h with E h(u + Z) ≈ u·ln u for all u ≥ 0, Z standard normal.
Noise of scale s then needs no second function: f(c) = s·(c/s)·ln(c/s) + c·ln s, whose last term is linear.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ..objective.information import LOG2E, xlogx

Floats = npt.NDArray[np.float64]

#: Where h is tabulated; above, the noise bias follows its expansion in 1/u.
_LOW, _HIGH, _STEP = -5.0, 14.0, 0.1
#: Smoothness asked of h: less bias would cost more variance.
_SMOOTH = 0.1
#: Empty cells are the most frequent ones, so u = 0 counts as much as this many other values.
_EMPTY = 60.0


def debiased(counts: Floats, scale: float | Floats) -> Floats:
    """Estimate c·ln c of each count from counts with normal noise of standard deviation `scale`.

    The expectation is off by less than 0.18·scale for any c ≥ 0, and less than 0.01·scale above 4·scale.
    Several scales, of a shape that can be broadcast to that of the counts, are all 0 or all positive.
    """
    if np.max(scale) <= 0:
        return np.asarray(np.where(counts > 0, xlogx(counts) / LOG2E, 0.0))
    nodes, values = _tabulated()
    u = counts / scale
    inside = np.interp(u, nodes, values)
    far = np.maximum(u, _HIGH)
    return np.asarray(scale * np.where(u > _HIGH, _tail(far), inside) + counts * np.log(scale))


def _tail(u: Floats) -> Floats:
    """u·ln u minus what unit noise adds to it far from zero."""
    return np.asarray(u * np.log(u) - 1.0 / (2.0 * u) - 1.0 / (2.0 * u**3))


@lru_cache(maxsize=1)
def _tabulated() -> tuple[Floats, Floats]:
    """Values of h on a grid: smoothed least squares of E h(u + Z) = u·ln u over u."""
    nodes = np.arange(_LOW, _HIGH + _STEP / 2, _STEP)
    u = np.concatenate([np.linspace(0.0, 4.0, 161), np.linspace(4.05, _HIGH - 4.0, 120)])
    z = np.linspace(-6.0, 6.0, 961)
    chance = np.exp(-0.5 * z**2)
    chance /= chance.sum()
    # Beyond the last node the tail formula holds; below the first one h stays level.
    at = np.clip((u[:, None] + z - _LOW) / _STEP, 0.0, len(nodes) - 1.0)
    left = np.minimum(at.astype(np.int64), len(nodes) - 2)
    cell = (np.arange(len(u))[:, None] * len(nodes) + left).ravel()
    right_part = chance * (at - left)
    mean = np.bincount(cell, (chance - right_part).ravel(), len(u) * len(nodes))
    mean += np.bincount(cell + 1, right_part.ravel(), len(u) * len(nodes))
    mean = mean.reshape(len(u), len(nodes))
    wanted = u * np.log(np.where(u > 0, u, 1.0))
    weight = np.where(u == 0, _EMPTY, 1.0) ** 0.5
    # Near the tail h is known; elsewhere it is asked to be smooth.
    known = nodes > 6.0
    bend = np.diff(np.eye(len(nodes)), 2, axis=0) / _STEP**1.5 * np.sqrt(_SMOOTH)
    system = np.concatenate(
        [weight[:, None] * mean, bend[nodes[1:-1] < 6.0], 30.0 * np.eye(len(nodes))[known]]
    )
    right = np.concatenate(
        [weight * wanted, np.zeros(int(np.sum(nodes[1:-1] < 6.0))), 30.0 * _tail(nodes[known])]
    )
    # Of full rank by `bend` and `known`, so that no singular values are needed.
    turned, triangle = np.linalg.qr(system)
    return nodes, np.asarray(np.linalg.solve(triangle, turned.T @ right), dtype=np.float64)
