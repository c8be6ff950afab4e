"""Outliers: clients whose associations lie far from the pool's, by more than noise and the usual variation.

For every table j and client i one number: how strongly its cells follow the pool's association U_j (the pooled
table of shares, doubly centred, of length 1),

    g_ij = ⟨T_ij, U_j⟩ / n_i,      variance  v_ij = (σ_j² + g_ij²·V(n_i)) / n_i²  +  sampling / n_i

A flipped label, an invented dependence or a missing one moves it; a client's size and, mostly, its margins
do not. Against the pool's median m_j and spread τ_j, the score is max over j of |g_ij − m_j| / √(v_ij + τ_j²).
τ_j is the value that makes the median client's squared distance the median of a χ²₁. Medians are
reliable while more than half of the clients are honest.

Honest clients differ with heavy tails: the score has no distribution one could derive, so its threshold
is set, and its rate of false alarm measured, on census pools (docs/limits.md). It is an alert, not a proof.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..schema.layout import Layout

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64] | npt.NDArray[np.float64]

#: Fewest clients from which a median and a spread can be told.
LEAST_CLIENTS = 8
#: Honest clients vary at least by this part of the pool's association, however noisy the pool.
_VARIETY = 0.1
#: A client weighs at most this much more than the median one in the pooled association.
_CAP = 4.0
#: Median of a χ² variable with one degree of freedom.
_HALF = 0.4549364231195724
_BISECTIONS = 50
_BLOCK = 4_000_000


@dataclass(frozen=True)
class Scores:
    """How far each client is from the pool, and in which table.

    Parameters
    ----------
    score
        Shape (clients,): largest standardised distance over the tables.
    table
        Shape (clients,): the table it is found in.
    stronger
        Shape (clients,): whether the association there is stronger than the pool's, else weaker or reversed.
    """

    score: Floats
    table: npt.NDArray[np.int64]
    stronger: npt.NDArray[np.bool_]


def association_scores(
    matrix: Counts, layout: Layout, sigmas: Floats, *, totals: Floats, total_variance: npt.ArrayLike
) -> Scores:
    """Score every client of a pool of at least `LEAST_CLIENTS`; of a smaller one all scores are 0.

    Parameters
    ----------
    matrix
        Shape (clients, cells): released counts.
    sigmas
        Shape (clients, tables) or (tables,): noise of each table; 0 for exact counts.
    totals, total_variance
        Estimated numbers of records and the variance of the estimate, one or one for each client.
    """
    clients = len(matrix)
    if clients < LEAST_CLIENTS:
        return Scores(np.zeros(clients), np.zeros(clients, dtype=np.int64), np.zeros(clients, dtype=np.bool_))
    # Below three standard deviations the number of records is unknown; one that small explains any share.
    variance = np.broadcast_to(np.asarray(total_variance, dtype=np.float64), totals.shape)
    sizes = np.maximum(totals, np.maximum(3.0 * np.sqrt(variance), 1.0))
    pooled = _pooled(matrix, layout, sizes)
    directions = _directions(pooled, layout)
    found = np.empty((clients, layout.tables))
    for rows in _blocks(clients, layout):
        found[rows] = np.add.reduceat(matrix[rows] * directions, layout.offsets[:-1], axis=1)
    found /= sizes[:, None]
    sampling = _per_table(directions**2 * pooled, layout) - _per_table(directions * pooled, layout) ** 2
    noise = (sigmas**2 + found**2 * variance[:, None]) / sizes[:, None] ** 2 + sampling / sizes[:, None]
    distance = standardised(found, noise)
    table = np.abs(distance).argmax(axis=1)
    worst = distance[np.arange(clients), table]
    return Scores(np.abs(worst), table, worst > 0)


def standardised(values: Floats, noise: Floats) -> Floats:
    """Signed distance of each value from its column's median, in units of noise and spread together.

    Parameters
    ----------
    values, noise
        Shape (clients, statistics): what was found, and its variance if all clients were alike.
    """
    middle = np.median(values, axis=0)
    spread = np.maximum(spread_of((values - middle) ** 2, noise), (_VARIETY * middle) ** 2)
    tiny = np.finfo(np.float64).tiny
    return np.asarray((values - middle) / np.sqrt(noise + spread + tiny), dtype=np.float64)


def spread_of(squared: Floats, noise: Floats, *, half: float = _HALF) -> Floats:
    """Variance between clients that makes the median of squared / (noise + variance) equal to `half`.

    Parameters
    ----------
    squared, noise
        Shape (clients, statistics): squared distances from the middle, and their variance if all were alike.
    half
        Median that a squared standard Gaussian would have.
    """
    low = np.zeros(squared.shape[1])
    high = squared.max(axis=0) / half
    tiny = np.finfo(np.float64).tiny
    for _ in range(_BISECTIONS):
        spread = (low + high) / 2
        wider = np.median(squared / (noise + spread + tiny), axis=0) > half
        low, high = np.where(wider, spread, low), np.where(wider, high, spread)
    return np.asarray(high, dtype=np.float64)


def _pooled(matrix: Counts, layout: Layout, sizes: Floats) -> Floats:
    """Mean table of shares, each client weighing by its size up to a cap, without negative cells."""
    weight = np.minimum(sizes, _CAP * np.median(sizes))
    weight /= weight.sum()
    mean = np.zeros(layout.cells)
    for rows in _blocks(len(matrix), layout):
        mean += (weight[rows] / sizes[rows]) @ matrix[rows]
    mean = np.maximum(mean, 0.0)
    sums = np.maximum(_per_table(mean, layout), np.finfo(np.float64).tiny)
    return np.asarray(mean / layout.per_cell(sums), dtype=np.float64)


def _directions(pooled: Floats, layout: Layout) -> Floats:
    """Doubly centred pooled tables, each of length 1; a table without association stays 0."""
    found = np.zeros(layout.cells)
    for j, shape in enumerate(layout.shapes):
        table = pooled[layout.slice(j)].reshape(shape)
        centred = table - table.mean(axis=0) - table.mean(axis=1)[:, None] + table.mean()
        length = float(np.linalg.norm(centred))
        # Rounding of shares that sum to 1 leaves 1e-17 where there is nothing.
        if length > 1e-12:
            found[layout.slice(j)] = (centred / length).ravel()
    return found


def _per_table(cells: Floats, layout: Layout) -> Floats:
    return np.asarray(np.add.reduceat(cells, layout.offsets[:-1]), dtype=np.float64)


def _blocks(clients: int, layout: Layout) -> Iterator[slice]:
    step = max(1, _BLOCK // layout.cells)
    for start in range(0, clients, step):
        yield slice(start, min(start + step, clients))
