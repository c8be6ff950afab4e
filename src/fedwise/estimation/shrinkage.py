"""Shrinkage: a client's noisy tables, moved toward what the pool predicts for them.

Every part of a client's tables is moved toward what the pool predicts for it, by τ²/(τ²+v): v is the
known noise variance, τ² the variance between clients, estimated over the pool. In order:

1. the number of records, positive by construction;
2. each marginal, toward the pool's and toward what the client's other marginals tell of it (`factors`),
   less so for a client that is unlike the others in every variable;
3. the pool's tables, toward independence where noise drowns them;
4. the *prediction* for a client's table: the pool's odds ratios fitted to the client's own marginals;
5. what the client's table holds beyond the prediction: first the one coordinate along which the pool's
   association grows or weakens (it moves mutual information most, and sums up a whole table in a single
   number with little noise), then cell by cell what is left;
6. the strength of all clients' tables together, so that their mixture has the pool's information.

Where clients carry different noise, a noisy one counts less in the pool that others are compared with (`Mixture`).

What a client's release shows clearly stays, whatever the pool is like: a deviation far beyond τ² + v is kept
(`widened`), and steps 2 and 6 move a client only as far as it is uncertain.

Each client gives one row of non-negative, consistent counts, so federations are still sums of rows.
Where there is no noise every step is the identity. Derivation: docs/theory/estimation.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..deferred import Deferred
from ..objective.information import ratio
from ..schema.layout import Layout
from . import association
from .agreement import agree
from .consistency import Parts, join, split, variances
from .estimates import Posterior
from .factors import factor_posterior
from .fitting import ROUNDS, centre, fit

if TYPE_CHECKING:
    from scipy import special
else:
    special = Deferred("scipy.special")

Floats = npt.NDArray[np.float64]

#: No proportion falls below this part of its prediction: noise may not empty a cell the pool knows.
FLOOR = 0.02
#: Error variance of the information by a near-empty cell, in units of its noise variance (see `entropy`).
_EMPTY_ERROR = 1.7
#: A client weighs at most this much more than the median one when τ² is estimated.
_CAP = 4.0
#: Observations that the factor 1 on a client's spread is worth.
_FACTOR_PRIOR = 1.0
#: Squared deviation, in units of its variance, beyond which it is kept as it is.
_DOUBT = 9.0


@dataclass(frozen=True)
class Shrunk:
    """Denoised counts of all clients, and what remains uncertain about them."""

    cells: Floats
    marginals: Floats
    totals: Floats
    posterior: Posterior


def shrink(matrix: npt.ArrayLike, layout: Layout, sigmas: npt.ArrayLike) -> Shrunk:
    """Denoise a pool of released counts.

    Parameters
    ----------
    matrix
        Shape (clients, cells): released counts of at least one client.
    sigmas
        Shape (clients, tables), or (tables,) where all clients have the same: noise of each table; all 0 for
        exact counts, which come back unchanged.
    """
    noise = np.asarray(sigmas, dtype=np.float64)
    parts, _ = split(matrix, layout, noise)
    noise = np.broadcast_to(noise, (len(parts.totals), layout.tables))
    if not noise.any():
        cells, marginals, totals = join(parts, layout)
        return Shrunk(cells, marginals, totals, _certain(layout, parts))
    return _Pool(parts, layout, noise).shrink()


@dataclass(frozen=True)
class Mixture:
    """How much each client counts: its share of the pool (summing to 1), and its weight where τ² is estimated."""

    share: Floats
    weight: Floats

    def between(self, deviation: Floats, v: Floats) -> Floats:
        """Between-client variance of each column by the method of moments, never negative.

        The pool mean holds every client, so E d_i² = h_i·τ² + (1 − 2s_i)·v_i + Σ_k s_k² v_k with s the
        shares and h_i = 1 − 2s_i + Σ_k s_k².
        """
        share = self.share[:, None]
        mean = np.sum(share**2 * v, axis=0)
        excess = self.weight @ (deviation**2 - (1.0 - 2.0 * share) * v - mean)
        scale = float(self.weight @ (1.0 - 2.0 * self.share + np.sum(self.share**2)))
        lone = scale <= 1e-9 * self.weight.sum()  # one client is its own pool
        return np.zeros_like(excess) if lone else np.maximum(excess / scale, 0.0)

    def spread(self, residual: Floats, pool: Floats, v: Floats) -> float:
        """Between-client variance of the cells off the direction, as a multiple of their proportion."""
        top = float(np.sum(self.weight @ ((residual**2 - v) * pool)))
        bottom = float(self.weight.sum() * np.sum(pool**2))
        return max(top / bottom, 0.0) if bottom > 0 else 0.0


class _Pool:
    """The steps of `shrink`, sharing the clients' sizes and the noise."""

    def __init__(self, parts: Parts, layout: Layout, sigmas: Floats) -> None:
        self.parts = parts
        self.layout = layout
        self.noise = sigmas**2
        self.variances = variances(layout, sigmas)
        self.sizes = positive(parts.totals, self.variances.total)
        self.share = self.sizes / self.sizes.sum()
        self.alike = bool((sigmas == sigmas[:1]).all())
        self.factor = np.ones(len(self.sizes))

    def shrink(self) -> Shrunk:
        layout, clients = self.layout, len(self.sizes)
        marginals, uncertain = self._marginals()
        whole = self.share @ marginals
        cells = self.parts.interactions  # reused: each table is read once, then overwritten
        posterior = Posterior(
            totals=self.variances.total.copy(),
            marginals=uncertain,
            strength=np.zeros((clients, layout.tables)),
            direction=np.zeros(layout.cells),
            spread=np.zeros(layout.tables),
            spread_factor=self.factor,
            pool=np.zeros(layout.cells),
            pool_strength=np.zeros(layout.tables),
            pool_cells=np.zeros(layout.cells),
            gap=np.zeros(layout.tables),
        )
        for j, (a, b) in enumerate(layout.shapes):
            here = layout.slice(j)
            x, y = layout.sides(j)
            own = cells[:, here].reshape(clients, a, b)
            mixture = self._mixture(
                own.reshape(clients, -1) / self.sizes[:, None],
                self.noise[:, j] * _free(a, b) / self.sizes**2,
                self.noise[:, j],
            )
            pooled = whole if self.alike else mixture.share @ marginals
            pool, uncertain_pool = self._pool_table(j, own, pooled[x], pooled[y], mixture)
            table = self._client_tables(j, own, pool, marginals[:, x], marginals[:, y], posterior, mixture)
            cells[:, here] = (table * self.sizes[:, None, None]).reshape(clients, a * b)
            posterior.pool[here] = pool.ravel()
            posterior.pool_cells[here] = uncertain_pool.ravel()
            posterior.pool_strength[j] = float(
                np.sum(uncertain_pool.ravel() * posterior.direction[here] ** 2)
            )
        return Shrunk(cells, marginals * self.sizes[:, None], self.sizes.copy(), posterior)

    def _marginals(self) -> tuple[Floats, Floats]:
        """Each level's proportion toward the pool's (step 2), and the variance left."""
        mixtures = [self._mixture_of(variable) for variable in range(len(self.layout.sizes))]
        found = [self._levels(variable, mixture) for variable, mixture in enumerate(mixtures)]
        self.factor = self._spread_factor(found)
        deviation = np.concatenate([own for own, _, _, _ in found], axis=1)
        noise = np.concatenate([np.broadcast_to(v, own.shape) for own, _, v, _ in found], axis=1)
        spread = np.concatenate([tau for _, _, _, tau in found])
        # A prior that is wider by a factor is like noise that is smaller by it.
        mean, left = factor_posterior(deviation, noise / self.factor[:, None], spread)
        unsure = np.divide(left, spread, out=np.ones_like(left), where=spread > 0)
        left *= self.factor[:, None]
        shrunk = np.empty_like(mean)
        for variable, (_, pool, _, _) in enumerate(found):
            here = self.layout.marginal(variable)
            # Floors lift the rare levels of every client; what is uncertain pays for it.
            floor = FLOOR * np.minimum(unsure[:, here], 1.0) * pool
            shrunk[:, here] = agree(
                pool + mean[:, here], left[:, here], floor, share=mixtures[variable].share, pool=pool
            )
        return shrunk, left

    def _mixture_of(self, variable: int) -> Mixture:
        """The mixture of clients that a variable's levels are compared with."""
        levels = self.layout.sizes[variable]
        own = self.parts.effects[:, self.layout.marginal(variable)] / self.sizes[:, None]
        noise = self.variances.effects[:, variable]
        return self._mixture(own, (1.0 - 1.0 / levels) * noise / self.sizes**2, noise)

    def _levels(self, variable: int, mixture: Mixture) -> tuple[Floats, Floats, Floats, Floats]:
        """Deviation of a variable's levels from the pool's, the pool's, their noise variance and spread.

        The effect has covariance v·(I − J/a), so one level has noise variance v·(1 − 1/a).
        """
        levels = self.layout.sizes[variable]
        here = self.layout.marginal(variable)
        own = self.parts.effects[:, here] / self.sizes[:, None] + 1.0 / levels
        pool = np.maximum(mixture.share @ own, 0.0)
        pool = pool / pool.sum() if pool.sum() > 0 else np.full(levels, 1.0 / levels)
        v = ((1.0 - 1.0 / levels) * self.variances.effects[:, variable] / self.sizes**2)[:, None]
        return own - pool, pool, v, mixture.between(own - pool, v)

    def _mixture(self, own: Floats, v: Floats, noise: Floats) -> Mixture:
        """Shares and weights of the clients for proportions `own` (clients, parts) with noise variances `v` (clients,).

        A client of the least noise counts by its size. With more noise it counts less in the pool, by
        (τ² + v₀)/(τ² + v) with v₀ the variance it would have at the least noise: as in a random-effects mean. Where
        τ² is estimated it counts by the square of that. τ² itself is first estimated from the precise clients.
        """
        squares = self.sizes**2
        weight = np.minimum(squares, _CAP * np.median(squares))  # a few large clients must not decide τ²
        if self.alike:
            return Mixture(self.share, weight)
        # Written for all noise at once: precision relative to that of the least noise.
        relative = noise.min() / np.where(noise > 0, noise, 1.0)
        start = Mixture(_normal(self.share * relative), weight * relative**2)
        spread = float(np.mean(start.between(own - start.share @ own, v[:, None])))
        count = np.divide(spread + v * relative, spread + v, out=np.ones_like(v), where=spread + v > 0)
        return Mixture(_normal(self.share * count), weight * count**2)

    def _spread_factor(self, found: list[tuple[Floats, Floats, Floats, Floats]]) -> Floats:
        """How much wider than the pool's a client's own spread is: a factor on every τ².

        Clients are not drawn from one normal law: a few are far from all others, in every variable.
        The factor is the client's mean of (d² − v)/τ², each weighted by its precision, drawn to 1 as
        by `_FACTOR_PRIOR` observations.
        """
        top, bottom, known = (np.zeros(len(self.sizes)) for _ in range(3))
        for deviation, _, v, tau in found:
            whole = np.asarray(tau + v)
            weight = np.divide(tau, whole**2, out=np.zeros_like(whole), where=whole > 0)
            top += np.sum(weight * (deviation**2 - v), axis=1)
            bottom += np.sum(weight * tau, axis=1)
            known += 0.5 * np.sum(weight * tau, axis=1)
        factor = np.divide(np.maximum(top, 0.0), bottom, out=np.ones_like(top), where=bottom > 0)
        return np.asarray((_FACTOR_PRIOR + known * factor) / (_FACTOR_PRIOR + known))

    def _pool_table(
        self, j: int, own: Floats, x: Floats, y: Floats, mixture: Mixture
    ) -> tuple[Floats, Floats]:
        """The pool's proportions of one table (step 3), and the variance left.

        Deviations from independence have prior variance θ·(p_x p_y)²: a common scale of the ratio
        p_xy / (p_x p_y) around 1, so that rare cells, where the noise is largest in proportion, go
        back to independence first.
        """
        expected = np.outer(x, y)
        if self.alike:
            mean = own.sum(axis=0) / self.sizes.sum()
        else:
            mean = np.tensordot(mixture.share / self.sizes, own, axes=1)
        deviation = mean - centre(expected)
        v = self._pool_noise(j, mixture)
        prior = _scaled_variance(deviation, expected**2, v)
        # A cell far beyond its noise is kept, however unusual it is beside the others.
        prior += np.maximum(deviation**2 - _DOUBT * v, 0.0)
        keep = _keep(prior, np.full_like(prior, v))
        table = np.maximum(expected + keep * deviation, FLOOR * (1.0 - keep) * expected)
        table = fit(table, x[None], y[None], rounds=ROUNDS)[0]
        goal = association.nats_of_noisy(expected + deviation, x, y, scale=float(np.sqrt(v)))
        return association.strengthen(table, goal), keep * v

    def _pool_noise(self, j: int, mixture: Mixture) -> float:
        """Noise variance of a cell of the pool's proportions in table j, marginals taken out."""
        if self.alike:
            noise = self.noise[0, j] * len(self.sizes) / self.sizes.sum() ** 2
        else:
            noise = np.sum(self.noise[:, j] * (mixture.share / self.sizes) ** 2)
        return float(noise * _free(*self.layout.shapes[j]))

    def _client_tables(
        self, j: int, own: Floats, pool: Floats, x: Floats, y: Floats, posterior: Posterior, mixture: Mixture
    ) -> Floats:
        """Proportions of one table for every client (steps 4 and 5). Fills the posterior of table j."""
        clients, a, b = own.shape
        predicted = fit(pool, x, y, rounds=ROUNDS)
        residual = (own / self.sizes[:, None, None] - centre(predicted)).reshape(clients, a * b)
        v = (self.noise[:, j] / self.sizes**2)[:, None]
        direction = association.direction(pool).ravel()
        along = residual @ direction
        tau = self.factor[:, None] * mixture.between(along[:, None], v)
        keep_along = _keep(widened(tau, along[:, None], v), v)
        residual -= along[:, None] * direction
        v_cell = v * _free(a, b)
        spread = mixture.spread(residual, pool.ravel(), v_cell)
        tau = self.factor[:, None] * spread * pool.ravel()
        keep_rest = _keep(widened(tau, residual, v_cell), v_cell)
        rest = (keep_rest * residual).reshape(clients, a, b)
        moved = predicted + rest + (keep_along * along[:, None] * direction).reshape(clients, a, b)
        floor = FLOOR * (1.0 - keep_rest).reshape(clients, a, b) * predicted
        posterior.direction[self.layout.slice(j)] = direction
        posterior.strength[:, j] = (keep_along * v)[:, 0]
        posterior.spread[j] = spread
        table, posterior.gap[j] = self._restore(
            np.maximum(moved, floor), pool, x, y, v=self._pool_noise(j, mixture),
            give=1.0 - keep_along[:, 0], share=mixture.share,
        )  # fmt: skip
        return table

    def _restore(
        self, tables: Floats, pool: Floats, x: Floats, y: Floats, *, v: float, give: Floats, share: Floats
    ) -> tuple[Floats, float]:
        """Fit clients' tables to their marginals, and their mixture to the pool's information (step 6).

        Counts cannot be negative, so noise raises the near-empty cells of every client and weakens the
        association of their mixture. The gap to the pool's is closed as far as it is beyond the pool's own
        error (a James–Stein factor): closing it completely would pass the pool's noise to the search. A client
        gives in proportion to `give`, the part of its own strength that it did not keep. Returns the tables and
        what is left of the gap.
        """
        fitted = fit(tables, x, y, rounds=ROUNDS)
        pattern = ratio(pool)
        present = association.nats(np.tensordot(share, fitted, axes=1))
        gap = association.nats(pool) - present
        logs = np.log(pattern[pool > 0])
        error = v * (
            float(np.sum(np.minimum(logs**2, 9.0))) + _EMPTY_ERROR * float(np.sum(pool < 4.0 * np.sqrt(v)))
        )
        believed = max(0.0, 1.0 - error / gap**2) if gap else 0.0
        if believed == 0.0 or present <= 0.0:
            return fitted, gap
        goal = present + believed * gap
        moved = association.mix_to(fitted, pattern, x, y, share=share, goal=goal, give=give)
        return moved, (1.0 - believed) * gap


def positive(totals: Floats, variance: npt.ArrayLike) -> Floats:
    """Number of records given a noisy total: mean of the noise model's N(total, variance) above zero.

        n̂ = t + s·φ(t/s)/Φ(t/s)

    Equal to the noisy total where that is large against its noise, and positive always.
    """
    known = np.broadcast_to(np.sqrt(np.asarray(variance, dtype=np.float64)), totals.shape)
    s = np.where(known > 0, known, 1.0)
    z = totals / s
    near = np.maximum(z, -25.0)
    mean = near + np.exp(-0.5 * near**2 - 0.5 * np.log(2.0 * np.pi) - special.log_ndtr(near))
    # Far below zero the sum cancels; there its expansion is exact.
    far = np.minimum(z, -25.0)
    above = s * np.where(z > -25.0, mean, (1.0 - 2.0 / far**2) / -far)
    return np.asarray(np.where(known > 0, above, np.maximum(totals, 1e-9)))


def widened(tau: Floats, deviation: Floats, v: Floats) -> Floats:
    """τ² of each client, wider where its own deviation says so: τ² + max(d² − 9(τ² + v), 0).

    Clients are not drawn from one normal law: with a common τ² a client that is d standard deviations off
    would be biased by d·v/√(τ² + v), without bound. Here a deviation within three standard deviations is
    shrunk as before, and the bias of one far beyond goes to zero.
    """
    return np.asarray(tau + np.maximum(deviation**2 - _DOUBT * (tau + v), 0.0))


def _normal(shares: Floats) -> Floats:
    return np.asarray(shares / shares.sum())


def _free(a: int, b: int) -> float:
    """Part of a cell's noise that is left once the table's marginals are taken out."""
    return (a - 1) * (b - 1) / (a * b)


def _scaled_variance(deviation: Floats, scale: Floats, v: float) -> Floats:
    """Prior variance θ·scale with θ by iterated, precision-weighted moments: E d² = θ·scale + v."""
    if not scale.any():
        return np.zeros_like(scale)
    theta, known, square = 1.0, scale.ravel(), (deviation**2 - v).ravel()
    for _ in range(20):
        weight = known / (theta * known + v + 1e-300) ** 2
        weight /= weight.max() + 1e-300
        bottom = float(np.add.reduce(weight * known))
        before, theta = theta, 1e-6
        if bottom > 0:
            theta = max(float(np.add.reduce(weight * square)) / bottom, 1e-6)
        if theta == before:
            break
    return theta * scale


def _keep(tau: Floats, v: Floats) -> Floats:
    """τ² / (τ² + v): the part of a deviation that is kept; all of it where there is no noise."""
    whole = np.asarray(tau + v, dtype=np.float64)
    if np.min(v, initial=np.inf) > 0:
        return np.asarray(tau / whole)
    top = np.broadcast_to(np.asarray(tau, dtype=np.float64), whole.shape)
    return np.where(np.asarray(v) > 0, np.divide(top, whole, out=np.zeros_like(whole), where=whole > 0), 1.0)


def _certain(layout: Layout, parts: Parts) -> Posterior:
    clients = len(parts.totals)
    return Posterior(
        totals=np.zeros(clients),
        marginals=np.zeros_like(parts.effects),
        strength=np.zeros((clients, layout.tables)),
        direction=np.zeros(layout.cells),
        spread=np.zeros(layout.tables),
        spread_factor=np.ones(clients),
        pool=np.zeros(layout.cells),
        pool_strength=np.zeros(layout.tables),
        pool_cells=np.zeros(layout.cells),
        gap=np.zeros(layout.tables),
    )
