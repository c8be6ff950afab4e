"""Shrinkage: a client's noisy tables, moved toward what the pool predicts for them.

Every part of a client's tables is moved toward what the pool predicts for it, by τ²/(τ²+v): v is the
known noise variance, τ² the variance between clients, estimated over the pool. In order:

1. the number of records, positive by construction;
2. each marginal, toward the pool's and toward what the client's other marginals tell of it (`factors`),
   less so for a client that is unlike the others in every variable; where noise drowns the sums, interactions
   tell of it too (`implied`);
3. the pool's tables, toward independence where noise drowns them;
4. the *prediction* for a client's table: the pool's odds ratios fitted to the client's own marginals;
5. what the client's table holds beyond the prediction: first the one coordinate along which the pool's
   association grows or weakens (it moves mutual information most, and sums up a whole table in a single
   number with little noise), then cell by cell what is left;
6. the strength of all clients' tables together, so that their mixture has the pool's information.

Where clients carry different noise, a noisy one counts less in the pool that others are compared with (`Mixture`).

What a client's release shows clearly stays, whatever the pool is like: a deviation far beyond τ² + v is kept
(`keeping.widened`), and steps 2 and 6 move a client only as far as it is uncertain.

Each client gives one row of non-negative, consistent counts, so federations are still sums of rows.
Where there is no noise every step is the identity. Derivation: docs/theory/estimation.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..objective.information import ratio
from ..schema.layout import Layout
from . import association
from .agreement import agree
from .consistency import Parts, join, split, variances
from .estimates import Posterior
from .factors import factor_posterior
from .fitting import ROUNDS, centre, fit
from .implied import improved, noise_trust
from .keeping import DOUBT, kept, positive, scaled_variance, widened
from .mixture import Mixture, weighted

Floats = npt.NDArray[np.float64]

#: No proportion falls below this part of its prediction: noise may not empty a cell the pool knows.
FLOOR = 0.02
#: Error variance of the information by a near-empty cell, in units of its noise variance (see `entropy`).
_EMPTY_ERROR = 1.7
#: A client weighs at most this much more than the median one when τ² is estimated.
_CAP = 4.0
#: Observations that the factor 1 on a client's spread is worth.
_FACTOR_PRIOR = 1.0


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
    parts, _ = split(matrix, layout, sigmas)
    return _shrunk(parts, layout, np.asarray(sigmas, dtype=np.float64), 1)[0]


def shrink_each(matrices: Floats, layout: Layout, sigmas: Floats) -> list[Shrunk]:
    """`shrink` of several pools of the same clients, shape (pools, clients, cells), with the same noise.

    All pools go through every step together. Tables are small, so most of the time of one pool is spent on calling
    numpy, and ten pools take about three times as long as one.
    """
    pools, clients, cells = matrices.shape
    noise = np.broadcast_to(sigmas, (pools, clients, layout.tables)).reshape(-1, layout.tables)
    parts, _ = split(matrices.reshape(pools * clients, cells), layout, noise)
    return _shrunk(parts, layout, np.asarray(sigmas, dtype=np.float64), pools)


def _shrunk(parts: Parts, layout: Layout, sigmas: Floats, pools: int) -> list[Shrunk]:
    """Denoised pools of split tables, the clients of one pool after those of another."""
    clients = len(parts.totals) // pools
    noise = np.broadcast_to(sigmas, (clients, layout.tables))
    apart = Parts(
        parts.totals.reshape(pools, clients),
        parts.effects.reshape(pools, clients, -1),
        parts.interactions.reshape(pools, clients, -1),
    )
    if noise.any():
        return _Pools(apart, layout, noise).shrink()
    each = [Parts(*one) for one in zip(apart.totals, apart.effects, apart.interactions, strict=True)]
    return [Shrunk(*join(one, layout), Posterior.nothing(layout, clients).of_pool(0)) for one in each]


class _Levels(NamedTuple):
    """One variable: deviation of clients' levels from the pool's, noise variance, the pool's, spread τ², who counts."""

    deviation: Floats
    noise: Floats
    pool: Floats
    spread: Floats
    mixture: Mixture

    def measured_as(self, deviation: Floats, noise: Floats, pools: npt.NDArray[np.bool_]) -> _Levels:
        """The same levels with another measurement of the deviations in some of the pools."""
        spread = np.where(pools[:, None], self.mixture.between(deviation, noise), self.spread)
        some = pools[:, None, None]
        return self._replace(
            deviation=np.where(some, deviation, self.deviation),
            noise=np.where(some, noise, self.noise),
            spread=spread,
        )


class _Pools:
    """The steps of `shrink`, sharing the clients' sizes and the noise. The first axis of arrays are the pools."""

    def __init__(self, parts: Parts, layout: Layout, sigmas: Floats) -> None:
        self.parts = parts
        self.layout = layout
        self.noise = sigmas**2
        self.variances = variances(layout, sigmas)
        self.sizes = positive(parts.totals, self.variances.total)
        self.share = _normal(self.sizes)
        self.alike = bool((sigmas == sigmas[:1]).all())
        self.factor = np.ones_like(self.sizes)

    def shrink(self) -> list[Shrunk]:
        layout, (pools, clients) = self.layout, self.sizes.shape
        marginals, uncertain = self._marginals()
        whole = weighted(self.share, marginals)
        cells = self.parts.interactions  # reused: each table is read once, then overwritten
        posterior = Posterior.nothing(layout, clients, pools)
        posterior.totals[:] = self.variances.total
        posterior.marginals[:], posterior.spread_factor[:] = uncertain, self.factor
        for j, (a, b) in enumerate(layout.shapes):
            here = layout.slice(j)
            x, y = layout.sides(j)
            own = cells[:, :, here].reshape(pools, clients, a, b)
            mixture = self._mixture_of_table(j, own)
            pooled = whole if self.alike else weighted(mixture.share, marginals)
            pool, uncertain_pool = self._pool_table(j, own, pooled[:, x], pooled[:, y], mixture)
            table = self._client_tables(
                j, own, pool, marginals[..., x], marginals[..., y], posterior, mixture
            )
            table *= self.sizes[..., None, None]
            cells[:, :, here] = table.reshape(pools, clients, a * b)
            posterior.pool[:, here] = pool.reshape(pools, -1)
            posterior.pool_cells[:, here] = uncertain_pool.reshape(pools, -1)
            posterior.pool_strength[:, j] = np.sum(
                posterior.pool_cells[:, here] * posterior.direction[:, here] ** 2, axis=1
            )
        marginals *= self.sizes[..., None]
        return [
            Shrunk(cells[i], marginals[i], self.sizes[i].copy(), posterior.of_pool(i)) for i in range(pools)
        ]

    def _marginals(self) -> tuple[Floats, Floats]:
        """Each level's proportion toward the pool's (step 2), and the variance left."""
        found = self._told_by_interactions([self._levels(v) for v in range(len(self.layout.sizes))])
        self.factor = self._spread_factor(found)
        deviation = np.concatenate([level.deviation for level in found], axis=-1)
        noise = np.concatenate(
            [np.broadcast_to(level.noise, level.deviation.shape) for level in found], axis=-1
        )
        spread = np.concatenate([level.spread for level in found], axis=-1)
        shrunk, left = np.empty_like(deviation), np.empty_like(deviation)
        for i, factor in enumerate(self.factor[..., None]):
            # A prior that is wider by a factor is like noise that is smaller by it.
            mean, left[i] = factor_posterior(deviation[i], noise[i] / factor, spread[i])
            unsure = np.divide(left[i], spread[i], out=np.ones_like(mean), where=spread[i] > 0)
            left[i] *= factor
            for variable, level in enumerate(found):
                here, pool = self.layout.marginal(variable), level.pool[i]
                # Floors lift the rare levels of every client; what is uncertain pays for it.
                floor = FLOOR * np.minimum(unsure[:, here], 1.0) * pool
                shrunk[i, :, here] = agree(
                    pool + mean[:, here], left[i, :, here], floor, share=level.mixture.share[i], pool=pool
                )
        return shrunk, left

    def _told_by_interactions(self, found: list[_Levels]) -> list[_Levels]:
        """Levels as the interactions of tables tell them too, in pools where the noise drowns the sums (`implied`)."""
        trust = noise_trust([level.noise for level in found], [level.spread for level in found])
        if not trust.any():
            return found
        layout, (pools, clients) = self.layout, self.sizes.shape
        raw = np.concatenate([level.deviation + level.pool[:, None] for level in found], axis=-1)
        tables, weights = [], []
        for j, (a, b) in enumerate(layout.shapes):
            own = self.parts.interactions[:, :, layout.slice(j)].reshape(pools, clients, a, b)
            mixture = self._mixture_of_table(j, own)
            pooled = weighted(mixture.share, raw)
            x, y = (_proportions(pooled[:, side]) for side in layout.sides(j))
            tables.append(self._pool_table(j, own, x, y, mixture)[0])
            weights.append(mixture.weight)
        deviation, noise = improved(
            np.concatenate([level.deviation for level in found], axis=-1), self.variances.effects,
            self.parts.interactions, self.sizes, self.noise, tables, weights, layout, trust,
        )  # fmt: skip
        told = []
        for variable, level in enumerate(found):
            here = layout.marginal(variable)
            told.append(level.measured_as(deviation[..., here], noise[..., here], trust > 0))
        return told

    def _mixture_of(self, variable: int) -> Mixture:
        """The mixture of clients that a variable's levels are compared with."""
        here, levels = self.layout.marginal(variable), self.layout.sizes[variable]
        noise = self.variances.effects[:, variable]
        return self._mixture(self.parts.effects[..., here], (1.0 - 1.0 / levels) * noise, noise)

    def _mixture_of_table(self, j: int, own: Floats) -> Mixture:
        """The mixture of clients that the interactions (pools, clients, a, b) of a table are compared with."""
        a, b = own.shape[-2:]
        flat = own.reshape(*own.shape[:2], a * b)
        return self._mixture(flat, self.noise[:, j] * _free(a, b), self.noise[:, j])

    def _levels(self, variable: int) -> _Levels:
        """What the sums of tables tell of a variable's levels.

        The effect has covariance v·(I − J/a), so one level has noise variance v·(1 − 1/a).
        """
        mixture, levels = self._mixture_of(variable), self.layout.sizes[variable]
        here = self.layout.marginal(variable)
        own = self.parts.effects[..., here] / self.sizes[..., None] + 1.0 / levels
        pool = _proportions(weighted(mixture.share, own))
        v = ((1.0 - 1.0 / levels) * self.variances.effects[:, variable] / self.sizes**2)[..., None]
        deviation = own - pool[:, None, :]
        return _Levels(deviation, v, pool, mixture.between(deviation, v), mixture)

    @cached_property
    def _by_size(self) -> Mixture:
        """Every client by its number of records."""
        squares = self.sizes**2
        # A few large clients must not decide τ².
        most = _CAP * np.median(squares, axis=-1, keepdims=True)
        return Mixture(self.share, np.minimum(squares, most))

    def _mixture(self, counts: Floats, v: Floats, noise: Floats) -> Mixture:
        """Shares and weights of the clients for `counts` (pools, clients, parts) in proportion to their records.

        A client of the least noise counts by its size. With more noise it counts less in the pool, by
        (τ² + v₀)/(τ² + v) with v₀ the variance it would have at the least noise: as in a random-effects mean. Where
        τ² is estimated it counts by the square of that. τ² itself is first estimated from the precise clients.

        Parameters
        ----------
        v
            Shape (clients,): noise variance of the counts.
        noise
            Shape (clients,): what it is in proportion to.
        """
        if self.alike:
            return self._by_size
        # Written for all noise at once: precision relative to that of the least noise.
        relative = noise.min() / np.where(noise > 0, noise, 1.0)
        start = Mixture(_normal(self.share * relative), self._by_size.weight * relative**2)
        own, v = counts / self.sizes[..., None], v / self.sizes**2
        away = own - weighted(start.share, own)[:, None, :]
        spread = np.mean(start.between(away, v[..., None]), axis=-1, keepdims=True)
        count = np.divide(spread + v * relative, spread + v, out=np.ones_like(v), where=spread + v > 0)
        return Mixture(_normal(self.share * count), self._by_size.weight * count**2)

    def _spread_factor(self, found: list[_Levels]) -> Floats:
        """How much wider than the pool's a client's own spread is: a factor on every τ².

        Clients are not drawn from one normal law: a few are far from all others, in every variable.
        The factor is the client's mean of (d² − v)/τ², each weighted by its precision, drawn to 1 as
        by `_FACTOR_PRIOR` observations.
        """
        top, bottom, known = (np.zeros_like(self.sizes) for _ in range(3))
        for deviation, v, _, spread, _ in found:
            tau = spread[:, None, :]
            whole = np.asarray(tau + v)
            weight = np.divide(tau, whole**2, out=np.zeros_like(whole), where=whole > 0)
            top += np.sum(weight * (deviation**2 - v), axis=-1)
            bottom += np.sum(weight * tau, axis=-1)
            known += 0.5 * np.sum(weight * tau, axis=-1)
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
        expected = x[:, :, None] * y[:, None, :]
        if self.alike:
            mean = own.sum(axis=1) / self.sizes.sum(axis=1)[:, None, None]
        else:
            mean = association.mixed(mixture.share / self.sizes, own)
        deviation = mean - centre(expected)
        v = self._pool_noise(j, mixture)
        v_cell = v[:, None, None]
        prior = scaled_variance(deviation, expected**2, v)
        # A cell far beyond its noise is kept, however unusual it is beside the others.
        prior += np.maximum(deviation**2 - DOUBT * v_cell, 0.0)
        keep = kept(prior, v_cell)
        table = np.maximum(expected + keep * deviation, FLOOR * (1.0 - keep) * expected)
        table = fit(table, x, y, rounds=ROUNDS)
        goals = association.nats_of_noisy(expected + deviation, x, y, scale=np.sqrt(v))
        return association.strengthen(table, goals), keep * v_cell

    def _pool_noise(self, j: int, mixture: Mixture) -> Floats:
        """Noise variance of a cell of the pool's proportions in table j, marginals taken out. Shape (pools,)."""
        if self.alike:
            noise = self.noise[0, j] * self.sizes.shape[1] / self.sizes.sum(axis=1) ** 2
        else:
            noise = np.sum(self.noise[:, j] * (mixture.share / self.sizes) ** 2, axis=1)
        return np.asarray(noise * _free(*self.layout.shapes[j]))

    def _client_tables(
        self, j: int, own: Floats, pool: Floats, x: Floats, y: Floats, posterior: Posterior, mixture: Mixture
    ) -> Floats:
        """Proportions of one table for every client (steps 4 and 5). Fills the posterior of table j."""
        pools, clients, a, b = own.shape
        flat = (pools, clients, a * b)
        predicted = fit(pool[:, None], x, y, rounds=ROUNDS)
        residual = (own / self.sizes[..., None, None] - centre(predicted)).reshape(flat)
        v = (self.noise[:, j] / self.sizes**2)[..., None]
        direction = association.direction(pool).reshape(pools, 1, a * b)
        along = residual @ direction.reshape(pools, a * b, 1)
        factor = self.factor[..., None]
        tau = factor * mixture.between(along, v)[:, None, :]
        keep_along = kept(widened(tau, along, v), v)
        residual -= along * direction
        v_cell = v * _free(a, b)
        spread = mixture.spread(residual, pool.reshape(pools, -1), v_cell)
        tau = factor * spread[:, None, None] * pool.reshape(pools, 1, a * b)
        keep_rest = kept(widened(tau, residual, v_cell), v_cell)
        moved = keep_rest * residual
        moved += keep_along * along * direction
        moved = moved.reshape(own.shape) + predicted
        floor = FLOOR * (1.0 - keep_rest).reshape(own.shape) * predicted
        posterior.direction[:, self.layout.slice(j)] = direction[:, 0]
        posterior.strength[:, :, j] = (keep_along * v)[..., 0]
        posterior.spread[:, j] = spread
        table, posterior.gap[:, j] = self._restore(
            np.maximum(moved, floor), pool, x, y, v=self._pool_noise(j, mixture),
            give=1.0 - keep_along[..., 0], share=mixture.share,
        )  # fmt: skip
        return table

    def _restore(
        self, tables: Floats, pool: Floats, x: Floats, y: Floats, *, v: Floats, give: Floats, share: Floats
    ) -> tuple[Floats, Floats]:
        """Fit clients' tables to their marginals, and their mixture to the pool's information (step 6).

        Counts cannot be negative, so noise raises the near-empty cells of every client and weakens the
        association of their mixture. The gap to the pool's is closed as far as it is beyond the pool's own
        error (a James–Stein factor): closing it completely would pass the pool's noise to the search. A client
        gives in proportion to `give`, the part of its own strength that it did not keep. Returns the tables and
        what is left of the gap.
        """
        fitted = fit(tables, x, y, rounds=ROUNDS)
        pattern = ratio(pool)
        present = association.nats(association.mixed(share, fitted))
        gap = association.nats(pool) - present
        logs = np.log(pattern)  # 0 for empty cells
        low = np.sum(pool < 4.0 * np.sqrt(v)[:, None, None], axis=(1, 2))
        error = v * (np.sum(np.minimum(logs**2, 9.0), axis=(1, 2)) + _EMPTY_ERROR * low)
        ratio_of = np.divide(error, gap**2, out=np.ones_like(gap), where=gap != 0)
        believed = np.where(present > 0.0, np.maximum(1.0 - ratio_of, 0.0), 0.0)
        goals = present + believed * gap
        for i in np.flatnonzero(believed).tolist():
            fitted[i] = association.mix_to(
                fitted[i], pattern[i], x[i], y[i], share=share[i], goal=float(goals[i]), give=give[i]
            )
        return fitted, (1.0 - believed) * gap


def _normal(shares: Floats) -> Floats:
    return np.asarray(shares / shares.sum(axis=-1, keepdims=True))


def _proportions(levels: Floats) -> Floats:
    """Levels (…, levels) that are not negative and sum to one; even where nothing is left."""
    found = np.maximum(levels, 0.0)
    total = found.sum(axis=-1, keepdims=True)
    return np.where(total > 0, found / np.where(total > 0, total, 1.0), 1.0 / found.shape[-1])


def _free(a: int, b: int) -> float:
    """Part of a cell's noise that is left once the table's marginals are taken out."""
    return (a - 1) * (b - 1) / (a * b)
