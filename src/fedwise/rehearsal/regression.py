"""Regression: what a metric of rehearsed federations owes to their members, to the stage, and to chance.

    value = stage + x·b + federation + noise,    b ~ N(0, α²), federation ~ N(0, φ²), noise ~ N(0, ν²)

with x what is known of a federation beforehand. Stages are free, the rest is a mixed model: α, φ and ν are those of
largest restricted likelihood on a grid, b and what a federation has beyond x·b their means given all values (best
linear unbiased prediction). A federation seen once thus stays near what others say of its members; one that was seen
often is what was seen.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import linalg

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Variances of b and of federations that are tried, in units of the noise.
_EFFECTS, _FEDERATIONS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0), (0.0, 0.3, 1.0, 3.0)
#: Least variance of the noise.
_LEAST = 1e-18


class Regression(NamedTuple):
    """Means of b, a root of their covariance, what each federation has beyond x·b, and the level of each stage."""

    effects: Floats
    root: Floats
    apart: Floats
    levels: Floats


def regress(features: Floats, federation: Ints, stage: Ints, values: Floats) -> Regression:
    """Fit the model.

    Parameters
    ----------
    features
        Shape (federations, features): x, centred, with squares that sum to about one.
    federation, stage
        Shape (values,): whose each value is, and from which stage; both counted from 0, every stage seen.

    Without any values everything is 0, and no stage has a level.
    """
    if not len(values):
        wide = features.shape[1]
        return Regression(np.zeros(wide), np.zeros((wide, wide)), np.zeros(len(features)), np.zeros(0))
    design, alike = (
        features[federation],
        np.asarray(federation[:, None] == federation[None], dtype=np.float64),
    )
    shared = design @ design.T
    of_stage = np.eye(int(stage.max()) + 1)[stage]
    best: tuple[float, _Solved] | None = None
    for effect in _EFFECTS:
        for own in _FEDERATIONS:
            found = _solved(effect * shared + own * alike + np.eye(len(values)), of_stage, values)
            if best is None or found.likelihood > best[0]:
                best, strengths = (found.likelihood, found), (effect, own)
    assert best is not None
    found, (effect, own) = best[1], strengths
    covariance = effect * np.eye(features.shape[1]) - effect**2 * design.T @ linalg.cho_solve(
        found.root, design
    )
    sizes, turn = np.linalg.eigh(covariance * found.noise)
    return Regression(
        effects=effect * design.T @ found.weights,
        root=turn * np.sqrt(np.maximum(sizes, 0.0)),
        apart=np.asarray(
            own * np.bincount(federation, found.weights, minlength=len(features)), dtype=np.float64
        ),
        levels=found.levels,
    )


class _Solved(NamedTuple):
    """One choice of variances: its restricted likelihood, the noise, C⁻¹(values − stages), stages, and a root of C."""

    likelihood: float
    noise: float
    weights: Floats
    levels: Floats
    root: tuple[Floats, bool]


def _solved(covariance: Floats, of_stage: Floats, values: Floats) -> _Solved:
    root = linalg.cho_factor(covariance, lower=True)
    solved = linalg.cho_solve(root, of_stage)
    inner = of_stage.T @ solved
    levels = np.linalg.solve(inner, solved.T @ values)
    rest = values - of_stage @ levels
    weights = linalg.cho_solve(root, rest)
    freedom = max(len(values) - of_stage.shape[1], 1)
    noise = max(float(rest @ weights) / freedom, _LEAST)
    volume = 2.0 * float(np.log(np.diag(root[0])).sum()) + float(np.linalg.slogdet(inner)[1])
    return _Solved(-(freedom * np.log(noise) + volume) / 2.0, noise, weights, levels, root)
