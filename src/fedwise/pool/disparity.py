"""Disparity: a group's rate of a label, beyond what the group's features explain at other clients.

Pair tables hold all covariances of the variables' levels. The pool's give a linear regression β of each label level on
the levels of all features and of the sensitive attribute; a client's own covariances of group and features then say
how the group's rate should differ there:

    cov(group, label)  =  Σ_l β_l · cov(group, level l)  +  what is left

What is left, divided by p(1 − p) of the group, is a difference of rates in points. A client where women work fewer
hours is not biased; one where women with equal features get the label less often than elsewhere may be.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..schema.schema import Schema
from .attenuation import Mask, Shares

Floats = npt.NDArray[np.float64]

#: Least ridge of the regression, in units of a share: levels rarer than this hardly count.
_RIDGE = 0.01


@dataclass(frozen=True)
class Disparity:
    """Rates of one label level of one group, of all clients.

    Parameters
    ----------
    group
        Position of the group among the attribute's levels.
    found, expected
        Shape (clients,): difference of the group's rate from the rest's, and what the pool's regression says.
    variance
        Shape (clients,): of their difference, by sampling and privacy noise.
    """

    group: int
    found: Floats
    expected: Floats
    variance: Floats


def disparities(shares: Shares, schema: Schema, attribute: int, inside: Mask) -> list[Disparity]:
    """One for each group and label level; of two groups or levels the second alone. Empty without the table."""
    layout = shares.layout
    at = {frozenset(pair): j for j, pair in enumerate(layout.pairs)}
    if frozenset((attribute, schema.target)) not in at:
        return []
    predictors = [*schema.features, attribute]
    wanted = {frozenset((x, y)) for x in [*predictors, schema.target] for y in predictors if x != y}
    if not wanted <= at.keys():
        predictors = [attribute]
    beta = _regression(shares, predictors, schema.target, inside)
    sizes = shares.sizes
    own = {v: covariance(shares, attribute, v) for v in [*predictors, schema.target]}
    p, q = shares.levels(attribute), shares.levels(schema.target)
    joint = shares.noise[:, at[frozenset((attribute, schema.target))]]
    made = []
    for g in range(1, 2) if p.shape[1] == 2 else range(p.shape[1]):
        unit = np.maximum(p[:, g] * (1 - p[:, g]), 1.0 / sizes)
        for y in range(1, 2) if q.shape[1] == 2 else range(q.shape[1]):
            said = sum(own[v][:, g] @ beta[v][:, y] for v in predictors)
            noise = joint + sum(
                shares.noise[:, at[frozenset((attribute, v))]] * np.sum(beta[v][:, y] ** 2)
                for v in predictors
                if v != attribute
            )
            variance = unit * q[:, y] * (1 - q[:, y]) / sizes + noise / sizes**2
            made.append(
                Disparity(g, own[schema.target][:, g, y] / unit, np.asarray(said) / unit, variance / unit**2)
            )
    return made


def covariance(shares: Shares, x: int, y: int) -> Floats:
    """Shape (clients, levels of x, levels of y): covariance of the levels' indicators at each client."""
    layout = shares.layout
    p, q = shares.marginals[:, layout.marginal(x)], shares.marginals[:, layout.marginal(y)]
    product = p[:, :, None] * q[:, None, :]
    if x == y:
        return np.asarray(np.eye(layout.sizes[x]) * p[:, :, None] - product, dtype=np.float64)
    for j, pair in enumerate(layout.pairs):
        if pair in ((x, y), (y, x)):
            table = shares.cells[:, layout.slice(j)].reshape(-1, *layout.shapes[j])
            return np.asarray((table if pair == (x, y) else table.swapaxes(1, 2)) - product, dtype=np.float64)
    raise KeyError((x, y))


def _regression(shares: Shares, predictors: list[int], target: int, inside: Mask) -> dict[int, Floats]:
    """Coefficients (levels of the predictor, levels of the target), by the mean covariances of the clients inside."""
    weight = np.where(inside, np.minimum(shares.sizes, 4.0 * np.median(shares.sizes)), 0.0)
    weight /= weight.sum()

    def mean(x: int, y: int) -> Floats:
        return np.asarray(np.tensordot(weight, covariance(shares, x, y), axes=1), dtype=np.float64)

    inner = np.block([[mean(x, y) for y in predictors] for x in predictors])
    outer = np.concatenate([mean(x, target) for x in predictors])
    # Noise of standard deviation s adds eigenvalues up to 2s√levels, of either sign: they hold nothing.
    noise = np.sqrt(np.sum(np.median(shares.noise, axis=1) * (weight / shares.sizes) ** 2))
    values, vectors = np.linalg.eigh((inner + inner.T) / 2)
    ridge = _RIDGE + 2.0 * noise * np.sqrt(len(inner))
    solved = vectors @ ((vectors.T @ outer) / (np.maximum(values, 0.0) + ridge)[:, None])
    cuts = np.cumsum([shares.layout.sizes[v] for v in predictors])[:-1]
    return dict(zip(predictors, np.split(solved, cuts), strict=True))
