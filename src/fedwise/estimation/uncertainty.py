"""Uncertainty: how far the loss of a federation may be off, by the delta method."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..objective.information import LOG2E, gradient, pointwise
from ..objective.weights import Weights, pair_weights
from ..schema.layout import Layout
from .estimates import Estimates, Posterior
from .fitting import margin_factors

Floats = npt.NDArray[np.float64]
Federation = Sequence[int] | npt.NDArray[np.int64]

#: By how much the variance of a member's part in the loss is above the sum over its tables and marginals, where it has
#: far more noise than others: what it lacks in one table it lacks in all. Chosen on pools that are not reported.
TOGETHER = 1.5


def standard_error(estimates: Estimates, federation: Federation, weights: Weights) -> float:
    """Standard error of the estimated loss of a federation, by the delta method.

    For ``shrinkage`` the error of each client is its posterior: noise *and* shrinkage bias, with the
    pool's own error, which all members share, and the second-order increase that unresolved differences
    give to mutual information. For ``plain`` it is the released noise alone: the clipping bias of the
    paper's estimate is not in it.

    Returns
    -------
    standard_error
        In units of the loss; 0 for exact counts.
    """
    return error_and_lift(estimates, federation, weights)[0]


def error_and_lift(estimates: Estimates, federation: Federation, weights: Weights) -> tuple[float, float]:
    """Standard error of the loss, and by how much the true loss is above the estimated one on average.

    Information is convex: that of a posterior mean is below the posterior mean of the information, by
    Σ var/(2p) nats for each table. With the weights of the tables this `lift` is the expected difference.
    It is counted in the standard error too, as the error of itself. For ``plain`` no lift is known: 0.
    """
    members = np.asarray(federation, dtype=np.int64)
    signed = pair_weights(estimates.schema, estimates.layout, weights)
    if not np.any(estimates.sigmas):
        return 0.0, 0.0
    if estimates.posterior is None:
        return _plain_error(estimates, members, signed), 0.0
    return _Delta(estimates, members, signed, estimates.posterior).error_and_lift()


def _plain_error(estimates: Estimates, members: npt.NDArray[np.int64], signed: Floats) -> float:
    """√(Σ_i Σ_j w_j² σ_ij² Σ_xy g²)."""
    layout = estimates.layout
    summed = estimates.cells[members].sum(axis=0)
    variance = 0.0
    for j in np.flatnonzero(signed).tolist():
        slope = gradient(summed[layout.slice(j)].reshape(layout.shapes[j]))
        noise = float(np.sum(estimates.sigmas[members, j] ** 2))
        variance += signed[j] ** 2 * noise * float(np.sum(slope**2))
    return math.sqrt(variance)


class _Delta:
    """Variance of the loss of one federation, part by part of the posterior."""

    def __init__(
        self, estimates: Estimates, members: npt.NDArray[np.int64], signed: Floats, posterior: Posterior
    ) -> None:
        self.layout = estimates.layout
        self.signed = signed
        self.posterior = posterior
        self.members = members
        self.sizes = estimates.totals[members]
        self.total = float(self.sizes.sum())
        self.share = self.sizes / self.total
        self.own = estimates.cells[members] / self.sizes[:, None]
        self.whole = self.share @ self.own
        self.noise = estimates.sigmas[members] ** 2
        self.factor = _together(estimates, posterior, members)

    def error_and_lift(self) -> tuple[float, float]:
        """Root of the summed variances and squared biases, and the first bias, whose sign is known."""
        slope = np.zeros(self.layout.cells)
        by_level = np.zeros(self.layout.levels)
        variance, biases = 0.0, np.zeros(2)
        for j in np.flatnonzero(self.signed).tolist():
            here = self.layout.slice(j)
            table = self.whole[here].reshape(self.layout.shapes[j])
            pmi = pointwise(table)
            slope[here] = self.signed[j] * pmi.ravel()
            centred = self._add_levels(j, table, pmi, by_level)
            found, lacking = self._interaction(j, table, centred)
            variance += found
            biases += lacking
        variance += self._totals(slope) + self._levels(by_level)
        return math.sqrt(variance + float(np.sum(biases**2))), float(biases[0])

    def _totals(self, slope: Floats) -> float:
        """A member's number of records is its share of the mixture."""
        pull = (self.own - self.whole) @ slope
        return float(np.sum(self.posterior.totals[self.members] * pull**2)) / self.total**2

    def _add_levels(self, j: int, table: Floats, pmi: Floats, by_level: Floats) -> Floats:
        """Slope of table j's information by the marginals, odds ratios fixed.

        Moving marginals by δ multiplies cells by 1 + α_x + β_y with A·(α, β) = δ, A the matrix of
        `margin_factors`; the information moves by s·(α, β) with s = (Σ_y P·PMI, Σ_x P·PMI). A is
        symmetric, so the slope is h with A·h = s. Returns what is left of PMI: the slope at fixed
        marginals.
        """
        x, y = self.layout.sides(j)
        down, across = margin_factors(table, table * pmi)
        by_level[x] += self.signed[j] * down
        by_level[y] += self.signed[j] * across
        return np.asarray(pmi - down[:, None] - across)

    def _levels(self, by_level: Floats) -> float:
        """Variance from the members' marginals."""
        left = self.posterior.marginals[self.members]
        return float(self.share**2 @ (self.factor * level_variance(self.layout, left, by_level)))

    def _interaction(self, j: int, table: Floats, slope: Floats) -> tuple[float, Floats]:
        """Variance from the members' and the pool's interactions, and how much information each leaves out."""
        here = self.layout.slice(j)
        p, direction = table.ravel(), self.posterior.direction[here]
        centred = slope.ravel()
        v = (self.noise[:, j] / self.sizes**2)[:, None]
        strength = self.posterior.strength[self.members, j]
        prior = (
            self.posterior.spread[j]
            * self.posterior.spread_factor[self.members, None]
            * self.posterior.pool[here]
        )
        kept = prior / (prior + v)
        steep = float(centred @ direction) ** 2
        squares = self.share**2
        members = float((squares * self.factor) @ (strength * steep + given(kept * v, centred, direction)))
        # What a member does not keep of its own deviation it takes from the pool, error included.
        lent = float(self.share @ (1.0 - strength / v[:, 0]))
        lent_cells = self.share @ (1.0 - kept)
        pool = lent**2 * self.posterior.pool_strength[j] * steep
        pool += float(given((lent_cells**2 * self.posterior.pool_cells[here])[None], centred, direction)[0])
        # E I(p + e) ≈ I(p) + Σ var(e)/(2p) in nats. Members' estimates lack this lift, in all tables to the
        # same side. The pool's table had its own restored, with an error of that size, but for the gap.
        own = _lift(squares @ (kept * v) + float(squares @ strength) * direction**2, p)
        restored = _lift(lent_cells**2 * self.posterior.pool_cells[here], p)
        biases = self.signed[j] * np.array([own, LOG2E * self.posterior.gap[j]])
        return self.signed[j] ** 2 * (members + pool + restored**2), biases


def _together(estimates: Estimates, posterior: Posterior, members: npt.NDArray[np.int64]) -> Floats:
    """Factor on the variance of each member's part in the loss: in a mixed pool its errors are not independent.

        1 + TOGETHER · mean_j (1 − (τ² + v⁰)/(τ² + v))

    with v the noise variance of the member's table j and v⁰ what it would be at the least noise of the pool. 1 for all
    where all have the same noise.
    """
    noise = estimates.sigmas[members] ** 2
    least = np.min(estimates.sigmas, axis=0) ** 2
    v = noise / estimates.totals[members, None] ** 2
    kept = np.divide(posterior.strength[members], v, out=np.ones_like(v), where=v > 0)
    # τ² + v = v/(1 − kept), so (v − v⁰)/(τ² + v) = (1 − v⁰/v)·(1 − kept).
    more = 1.0 - np.divide(least, noise, out=np.ones_like(v), where=noise > 0)
    return np.asarray(1.0 + TOGETHER * (more * np.clip(1.0 - kept, 0.0, 1.0)).mean(axis=1))


def _lift(variances: Floats, p: Floats) -> float:
    """Information, in bits, that errors of these variances add; a cell's own size bounds its part."""
    return 0.5 * LOG2E * float(np.sum(np.minimum(variances / np.maximum(p, 1e-12), p)))


def level_variance(layout: Layout, left: Floats, by_level: Floats) -> Floats:
    """Variance of a slope by the marginals of each client, shape (clients,).

    Levels of a variable err independently, given that they sum to one. Equal variances u of a levels leave
    u·(1 − 1/a) under that condition, so u is a/(a − 1) times the variance of a level.
    """
    variance = np.zeros(len(left))
    for variable, levels in enumerate(layout.sizes):
        here = layout.marginal(variable)
        v, h = left[:, here] * (levels / max(levels - 1, 1)), by_level[here]
        variance += given(v, h, np.ones_like(h))
    return variance


def given(variances: Floats, slope: Floats, fixed: Floats) -> Floats:
    """Variance of slope·e for independent e (…, m) given that fixed·e = 0."""
    plain = variances @ slope**2
    cross = variances @ (slope * fixed)
    own = variances @ fixed**2
    known = np.divide(cross**2, own, out=np.zeros_like(own), where=own > 0)
    return np.asarray(np.maximum(plain - known, 0.0))
