"""Attenuation: how far each client's associations follow those of the rest of the pool.

For client i and table j with variables x and y, from the consistent noisy tables,

    D  = p(x,y) − p(x)p(y)                       what the client has
    D₀ = the same from the pool's odds ratios,   what the others' odds give at the client's own marginals
    w  = 1 / (E/n + σ²/n²)                       E the expected share of the cell

The slope of D on D₀ is 1 for a client like the others, 1 − s where a share s of one of the two variables is random.
The pool's odds are those of the other clients that look like most; who does is settled in a few rounds.
What is left, D − slope·D₀, has the dispersion κE + σ²/n², with κ = 1/n for n independent records.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..estimation.consistency import consistent, variances
from ..estimation.fitting import fit
from ..schema.layout import Layout
from .outliers import spread_of

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

#: A client further out than this, in units of noise and spread, does not shape what others are compared with.
OUTSIDE = 2.0
#: Median of z² for a standard Gaussian that is cut at ±`OUTSIDE`.
_HALF_INSIDE = 0.4085
#: A client weighs at most this much more than the median one in the pooled tables.
_CAP = 4.0
#: Share of independence mixed into the pooled odds, so that a level the others lack is not impossible.
_SMOOTH = 1e-3
#: Rounds of proportional fitting: the slope needs no eighth digit.
_FITS = 20
#: Honest clients' slopes differ at least this much in each table.
_LEAST_DIFFERENCE = 0.03


@dataclass(frozen=True)
class Shares:
    """Clients' consistent tables as shares of their records.

    Parameters
    ----------
    cells, marginals
        Shapes (clients, cells) and (clients, levels): unbiased, may be negative.
    sizes
        Shape (clients,): estimated numbers of records, never below three standard errors.
    known
        Shape (clients,): whether the estimate itself is above that.
    noise
        Shape (clients, tables): variance of a cell's interaction, in records².
    effects
        Shape (clients, variables): variance of a level's marginal, in records².
    total_errors
        Shape (clients,): standard error of the number of records by noise; 0 for exact counts.
    """

    layout: Layout
    cells: Floats
    marginals: Floats
    sizes: Floats
    known: Mask
    noise: Floats
    effects: Floats
    total_errors: Floats

    @classmethod
    def of(cls, matrix: npt.ArrayLike, layout: Layout, sigmas: Floats) -> Shares:
        """Make released counts consistent and divide by each client's total."""
        cells, marginals, totals, _ = consistent(matrix, layout, sigmas)
        exact = not sigmas.all()
        scales = np.broadcast_to(sigmas, (len(totals), layout.tables))
        parts = variances(layout, np.where(exact, 1.0, scales))
        least = np.ones(len(totals)) if exact else least_records(layout, scales)
        sizes = np.maximum(totals, least)
        inner = np.array([(1 - 1 / a) * (1 - 1 / b) for a, b in layout.shapes])
        return cls(
            layout,
            cells / sizes[:, None],
            marginals / sizes[:, None],
            sizes,
            totals > least,
            scales**2 * inner,
            0.0 * parts.effects if exact else parts.effects,
            np.zeros(len(totals)) if exact else parts.total**0.5,
        )

    def noise_of(self, table: int) -> Floats:
        """Shape (clients, a, b): noise variance of a cell of p(x,y) − p(x)p(y), its marginals' noise included."""
        (x, y), (a, b) = self.layout.pairs[table], self.layout.shapes[table]
        p, q = self.levels(x)[:, :, None], self.levels(y)[:, None, :]
        rows, columns, inner = self.effects[:, x], self.effects[:, y], self.noise[:, table]
        effects = rows[:, None, None] * (1 - 1 / a) * (1 / b - q) ** 2
        effects = effects + columns[:, None, None] * (1 - 1 / b) * (1 / a - p) ** 2
        noise = inner[:, None, None] + effects
        return np.asarray(noise / self.sizes[:, None, None] ** 2, dtype=np.float64)

    def levels(self, variable: int) -> Floats:
        """Shape (clients, levels): one variable's shares, not negative, summing to 1."""
        found = np.maximum(self.marginals[:, self.layout.marginal(variable)], 0.0) + 1e-9
        return np.asarray(found / found.sum(axis=1, keepdims=True), dtype=np.float64)


def least_records(layout: Layout, sigmas: Floats) -> Floats:
    """Number of records, three standard errors, below which tables hold no more than noise.

    Parameters
    ----------
    sigmas
        Shape (clients, tables).

    Returns
    -------
    least
        Shape (clients,).
    """
    return np.asarray(np.maximum(3.0 * variances(layout, sigmas).total ** 0.5, 1.0), dtype=np.float64)


@dataclass(frozen=True)
class Compared:
    """One table of all clients beside what the other clients' odds say.

    Parameters
    ----------
    found, expected
        Shape (clients, a, b): D and D₀.
    share
        Shape (clients, a, b): E.
    noise
        Shape (clients, a, b): variance of a cell of `found` by privacy noise.
    sizes
        Shape (clients,): numbers of records.
    """

    found: Floats
    expected: Floats
    share: Floats
    noise: Floats
    sizes: Floats

    @property
    def variance(self) -> Floats:
        """Shape (clients, a, b): of a cell of `found`, by sampling and by privacy noise."""
        return np.asarray(self.share / self.sizes[:, None, None] + self.noise, dtype=np.float64)

    def slopes(self) -> tuple[Floats, Floats]:
        """Slope of D on D₀ of each client, and its variance if all were alike."""
        weight = 1.0 / self.variance
        precision = np.sum(self.expected**2 * weight, axis=(1, 2))
        precision = np.maximum(precision, np.finfo(np.float64).tiny ** 0.5)
        return np.sum(self.found * self.expected * weight, axis=(1, 2)) / precision, 1.0 / precision

    def dispersion(self, slopes: Floats) -> tuple[Floats, Floats]:
        """Moment estimate of κ of each client, and its variance."""
        a, b = self.found.shape[1:]
        freedom = ((a - 1) * (b - 1) - 1) / (a * b)
        # One record more or less in a rare cell is no Gaussian: such cells count less.
        scale = self.variance + 1.0 / self.sizes[:, None, None] ** 2
        weight = self.share / scale**2
        squared = (self.found - slopes[:, None, None] * self.expected) ** 2 / freedom - self.noise
        total = np.sum(weight * self.share, axis=(1, 2))
        kappa = np.sum(weight * squared, axis=(1, 2)) / total
        return kappa, 2.0 * np.sum((weight * scale) ** 2, axis=(1, 2)) / total**2 / freedom


def compare_table(shares: Shares, table: int, inside: Mask) -> Compared:
    """Table number `table` of all clients beside the odds of the clients `inside`, each left out of its own."""
    layout = shares.layout
    (x, y), (a, b) = layout.pairs[table], layout.shapes[table]
    cells = shares.cells[:, layout.slice(table)].reshape(-1, a, b)
    weight = np.where(inside, np.minimum(shares.sizes, _CAP * np.median(shares.sizes)), 0.0)
    weight *= _relative_precision(shares, table)
    others = np.tensordot(weight, cells, axes=1) - weight[:, None, None] * cells
    others = np.maximum(others / (weight.sum() - weight)[:, None, None], 0.0)
    down, across = others.sum(axis=2) + 1e-6, others.sum(axis=1) + 1e-6
    others += _SMOOTH * down[:, :, None] * across[:, None, :]
    p, q = shares.levels(x), shares.levels(y)
    expected = fit(others, p, q, rounds=_FITS)
    rows, columns = layout.sides(table)
    own = shares.marginals[:, rows, None] * shares.marginals[:, None, columns]
    # A cell that the others never fill still varies by a trace of what independence gives.
    share = np.maximum(expected, 0.01 * p[:, :, None] * q[:, None, :])
    flat = expected - p[:, :, None] * q[:, None, :]
    return Compared(cells - own, flat, share, shares.noise_of(table), shares.sizes)


def _relative_precision(shares: Shares, table: int) -> Floats:
    """How much less each client says of the pool's odds than with the least noise in the pool: 1 where all have that.

    A cell varies by sampling and by noise; a client of ten times the noise must not drown what the precise ones say.
    """
    noise = shares.noise[:, table] / shares.sizes**2
    if (shares.noise[:, table] == shares.noise[:1, table]).all():
        return np.ones(len(noise))
    sampling = 1.0 / (shares.layout.shapes[table][0] * shares.layout.shapes[table][1] * shares.sizes)
    least = shares.noise[:, table].min() / shares.sizes**2
    return np.asarray((sampling + least) / (sampling + noise))


def middle_and_spread(values: Floats, noise: Floats, inside: Mask) -> tuple[Floats, Floats]:
    """Median and between-client variance of each column, from the clients inside.

    Parameters
    ----------
    values, noise
        Shape (clients, statistics).
    """
    middle = np.median(values[inside], axis=0)
    return middle, spread_of((values[inside] - middle) ** 2, noise[inside], half=_HALF_INSIDE)


def combined(values: Floats, noise: Floats, inside: Mask, *, median: bool = False) -> tuple[Floats, Floats]:
    """One slope of each client over several tables, relative to the pool's, and its variance by noise.

    A table weighs by its noise and by how much honest clients differ in it, 1/(v + τ²). With `median` the weighted
    median is taken: random values weaken every table, what is peculiar to a place only some.
    """
    middle, spread = middle_and_spread(values, noise, inside)
    usable = middle > 0.3
    if not usable.any():
        return np.ones(len(values)), np.full(len(values), np.inf)
    scale = middle[usable]
    relative, variance = values[:, usable] / scale, noise[:, usable] / scale**2
    differ = spread[usable] / scale**2
    # By chance a table's spread may be estimated as nothing; it must not outweigh all others for that.
    differ = np.maximum(differ, _LEAST_DIFFERENCE**2)
    weight = 1.0 / (variance + differ)
    weight /= weight.sum(axis=1, keepdims=True)
    noise_of_mean = np.sum(weight**2 * variance, axis=1)
    if not median:
        return np.sum(weight * relative, axis=1), noise_of_mean
    return weighted_median(relative, weight), np.pi / 2 * noise_of_mean


def weighted_median(values: Floats, weights: Floats) -> Floats:
    """Median of each row where values count by their weights, which sum to 1."""
    order = np.argsort(values, axis=1)
    reached = np.cumsum(np.take_along_axis(weights, order, axis=1), axis=1) >= 0.5 - 1e-12
    at = np.take_along_axis(order, reached.argmax(axis=1)[:, None], axis=1)
    return np.asarray(np.take_along_axis(values, at, axis=1)[:, 0], dtype=np.float64)
