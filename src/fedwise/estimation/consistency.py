"""Consistency: every table holds the total and two marginals; make all tables agree.

Within one table (a × b) the noise is independent and of equal variance σ_j², so the table splits
orthogonally into total, centred row effect, centred column effect and interaction, with independent
noise. The least-squares answer over all tables is therefore a precision-weighted mean of each part:

    total       n_j = Σ_xy t_xy,             variance σ_j² · a · b
    variable X  c_j[x] = Σ_y t_xy − n_j / a,   covariance σ_j² · b · (I − J/a)
    interaction appears in one table only and stays.

    adjusted table = interaction + n̂ / (ab) + ĉ_X[x] / b + ĉ_Y[y] / a

Everything is linear in the released counts: adjusted tables of clients may be summed, and the sum is
consistent too. The lack of agreement before the adjustment is a χ² statistic with known distribution,
the screen for releases that did not come from one data set or carry other noise than the plan says.

Each client has its own scales: precisions, weights and variances are arrays whose first axis are the clients.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..deferred import Deferred
from ..errors import PoolError
from ..schema.layout import Layout

if TYPE_CHECKING:
    from scipy import special
else:
    special = Deferred("scipy.special")

Floats = npt.NDArray[np.float64]

#: Numbers held at a time while going through clients: 4 million float64 are 32 MB.
_BLOCK = 4_000_000
#: Disagreement below this part of the largest count is rounding, where counts carry no noise.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Consistency:
    """How far each client's tables disagree with one another, against what the noise explains.

    Parameters
    ----------
    statistic
        Shape (clients,): Σ_j (n_j − n̂)²/(σ_j² ab) + Σ_X Σ_j ‖c_j − ĉ_X‖²/(σ_j² b).
    dof
        Degrees of freedom: (M − 1) + Σ_X (tables with X − 1)(levels of X − 1).
    p_value
        Shape (clients,): chance of a larger statistic under the plan's own noise.
    """

    statistic: Floats
    dof: int
    p_value: Floats


@dataclass(frozen=True)
class Parts:
    """Clients' tables, split into parts whose noise is independent, each part combined over tables.

    Parameters
    ----------
    totals
        Shape (clients,).
    effects
        Shape (clients, sum of sizes): centred marginal of each variable, in schema order.
    interactions
        Shape (clients, cells): doubly centred tables.
    """

    totals: Floats
    effects: Floats
    interactions: Floats


@dataclass(frozen=True)
class Variances:
    """Noise variance of each part: of the total, of each variable's effect, of each interaction.

    Shapes (…), (…, variables) and (…, tables) for scales of shape (…, tables). The effect of X has covariance
    ``effects[X] · (I − J/a)``, the interaction of table j ``interactions[j] · (I − J/a) ⊗ (I − J/b)``.
    """

    total: Floats
    effects: Floats
    interactions: Floats


def consistent(
    matrix: npt.ArrayLike, layout: Layout, sigmas: npt.ArrayLike
) -> tuple[Floats, Floats, Floats, Consistency]:
    """Adjust every client's tables so that all totals and marginals agree, by least squares.

    Parameters
    ----------
    matrix
        Shape (clients, cells): released counts.
    sigmas
        Shape (clients, tables), or (tables,) where all clients have the same: noise of each table; 0 for exact
        counts.

    Returns
    -------
    cells, marginals, totals
        Shapes (clients, cells), (clients, sum of sizes), (clients,). Already consistent counts
        come back unchanged.
    consistency
        The disagreement before the adjustment.
    """
    parts, consistency = split(matrix, layout, sigmas)
    return (*join(parts, layout), consistency)


def screen(matrix: npt.ArrayLike, layout: Layout, sigmas: npt.ArrayLike) -> Consistency:
    """Only the disagreement of each client's tables; needs little memory beside the matrix."""
    return combine(matrix, layout, sigmas)[2]


def combine(
    matrix: npt.ArrayLike, layout: Layout, sigmas: npt.ArrayLike
) -> tuple[Floats, Floats, Consistency]:
    """Combined totals and effects as in `Parts`, and the disagreement, without the interactions."""
    counts, noise = _checked(matrix, layout, sigmas)
    clients = counts.shape[0]
    totals, effects, statistic = np.empty(clients), np.empty((clients, layout.levels)), np.empty(clients)
    for rows in _blocks(clients, layout):
        totals[rows], effects[rows], statistic[rows] = _split_block(counts[rows], layout, noise[rows], None)
    return totals, effects, _verdict(statistic, layout)


def split(matrix: npt.ArrayLike, layout: Layout, sigmas: npt.ArrayLike) -> tuple[Parts, Consistency]:
    """Split released counts into combined totals, effects and interactions."""
    counts, noise = _checked(matrix, layout, sigmas)
    clients = counts.shape[0]
    parts = Parts(np.empty(clients), np.empty((clients, layout.levels)), np.empty((clients, layout.cells)))
    statistic = np.empty(clients)
    for rows in _blocks(clients, layout):
        totals, effects, disagreement = _split_block(
            counts[rows], layout, noise[rows], parts.interactions[rows]
        )
        parts.totals[rows], parts.effects[rows], statistic[rows] = totals, effects, disagreement
    return parts, _verdict(statistic, layout)


def join(parts: Parts, layout: Layout) -> tuple[Floats, Floats, Floats]:
    """Cells, marginals and totals of split tables: the inverse of `split` for consistent counts."""
    cells = parts.interactions.copy()
    marginals = parts.effects + parts.totals[:, None] / np.repeat(layout.sizes, layout.sizes)
    for j, (a, b) in enumerate(layout.shapes):
        rows, columns = layout.sides(j)
        table = cells[:, layout.slice(j)].reshape(-1, a, b)
        table += (parts.totals / (a * b))[:, None, None]
        table += parts.effects[:, rows, None] / b
        table += parts.effects[:, None, columns] / a
        cells[:, layout.slice(j)] = table.reshape(-1, a * b)
    return cells, marginals, parts.totals.copy()


def variances(layout: Layout, sigmas: npt.ArrayLike) -> Variances:
    """Noise variance of the combined parts: 1 / Σ_j (precision of the part in table j)."""
    noise = np.asarray(sigmas, dtype=np.float64) ** 2
    total, effects = _precisions(layout, noise)
    with np.errstate(divide="ignore"):
        nothing = np.zeros(noise.shape[:-1])
        return Variances(
            total=np.asarray(1.0 / total.sum(axis=-1)),
            effects=np.stack(
                [1.0 / sum(p for _, _, p in found) if found else nothing for found in effects], axis=-1
            ),
            interactions=noise,
        )


def _precisions(layout: Layout, noise: Floats) -> tuple[Floats, list[list[tuple[int, int, Floats]]]]:
    """Precision of each table's total, and (table, axis, precision) of each variable's effects."""
    cells = np.array([a * b for a, b in layout.shapes], dtype=np.float64)
    effects: list[list[tuple[int, int, Floats]]] = [[] for _ in layout.sizes]
    with np.errstate(divide="ignore"):
        total = 1.0 / (noise * cells)
        for j, ((x, y), (a, b)) in enumerate(zip(layout.pairs, layout.shapes, strict=True)):
            effects[x].append((j, 0, np.asarray(1.0 / (noise[..., j] * b))))
            effects[y].append((j, 1, np.asarray(1.0 / (noise[..., j] * a))))
    return total, effects


def _split_block(
    counts: npt.NDArray[np.generic], layout: Layout, noise: Floats, interactions: Floats | None
) -> tuple[Floats, Floats, Floats]:
    """Combined totals and effects of some clients, and their disagreement; fills `interactions`."""
    tables = layout.tables
    sums: list[tuple[Floats, Floats]] = []
    found = np.empty((counts.shape[0], tables))
    for j, (a, b) in enumerate(layout.shapes):
        table = counts[:, layout.slice(j)].reshape(-1, a, b).astype(np.float64)
        rows, columns = table.sum(axis=2), table.sum(axis=1)
        found[:, j] = rows.sum(axis=1)
        rows -= found[:, j, None] / a
        columns -= found[:, j, None] / b
        sums.append((rows, columns))
        if interactions is not None:
            table -= rows[:, :, None] / b
            table -= columns[:, None, :] / a
            table -= (found[:, j] / (a * b))[:, None, None]
            interactions[:, layout.slice(j)] = table.reshape(-1, a * b)
    scale = np.maximum(np.abs(found).max(axis=1, initial=0.0), 1.0)
    precision, effect_precisions = _precisions(layout, noise)
    totals = np.einsum("cj,cj->c", found, _mean_weights(precision))
    statistic = _disagreement(found - totals[:, None], precision, scale)
    effects = np.zeros((counts.shape[0], layout.levels))
    for variable, members in enumerate(effect_precisions):
        if not members:
            continue
        here = layout.marginal(variable)
        weights = _mean_weights(np.stack([p for _, _, p in members], axis=1))
        for weight, (j, axis, _) in zip(weights.T, members, strict=True):
            effects[:, here] += weight[:, None] * sums[j][axis]
        for j, axis, p in members:
            statistic += _disagreement(sums[j][axis] - effects[:, here], p[:, None], scale)
    return totals, effects, statistic


def _mean_weights(precision: Floats) -> Floats:
    """Weights of each client's precision-weighted mean; exact tables (infinite precision) share it evenly."""
    exact = np.isinf(precision)
    chosen = np.where(exact.any(axis=1, keepdims=True), exact, precision) if exact.any() else precision
    return np.asarray(chosen / chosen.sum(axis=1, keepdims=True), dtype=np.float64)


def _disagreement(deviation: Floats, precision: Floats, scale: Floats) -> Floats:
    """Σ precision · deviation² per client, where an exact table allows no deviation beyond rounding."""
    exact = np.isinf(precision)
    if not exact.any():
        return np.asarray((deviation**2 * precision).sum(axis=1), dtype=np.float64)
    beyond = np.abs(deviation) > _ROUNDING * scale[:, None]
    finite = np.where(exact, 0.0, precision)
    impossible = (beyond & exact).any(axis=1)
    return np.where(impossible, np.inf, (deviation**2 * finite).sum(axis=1))


def _verdict(statistic: Floats, layout: Layout) -> Consistency:
    in_tables = np.bincount(np.asarray(layout.pairs, dtype=np.int64).ravel(), minlength=len(layout.sizes))
    dof = layout.tables - 1 + int(np.sum(np.maximum(in_tables - 1, 0) * (np.asarray(layout.sizes) - 1)))
    if dof == 0:
        return Consistency(statistic, 0, np.where(statistic > 0, 0.0, 1.0))
    return Consistency(statistic, dof, np.asarray(special.chdtrc(dof, statistic), dtype=np.float64))


def _blocks(clients: int, layout: Layout) -> Iterator[slice]:
    step = max(1, _BLOCK // max(layout.cells, 1))
    for start in range(0, clients, step):
        yield slice(start, min(start + step, clients))


def _checked(
    matrix: npt.ArrayLike, layout: Layout, sigmas: npt.ArrayLike
) -> tuple[npt.NDArray[np.generic], Floats]:
    counts = np.asarray(matrix)
    scales = np.asarray(sigmas, dtype=np.float64)
    if layout.tables == 0:
        raise PoolError("pool must hold at least one table; plan at least one pair of variables")
    if counts.ndim != 2 or counts.shape[1] != layout.cells:
        raise PoolError(
            f"matrix must have shape (clients, {layout.cells}) for this layout, got {counts.shape}; "
            "use releases of one plan"
        )
    if scales.shape not in ((layout.tables,), (len(counts), layout.tables)):
        raise PoolError(
            f"sigmas must have shape ({layout.tables},) or ({len(counts)}, {layout.tables}), got {scales.shape}; "
            "give one per table, or one per client and table"
        )
    if not (np.isfinite(scales).all() and (scales >= 0).all()):
        raise PoolError("sigmas must be finite and at least 0; check the plan")
    if counts.dtype.kind == "f" and not np.isfinite(counts).all():
        raise PoolError("matrix must hold finite counts; drop the damaged release")
    return counts, np.broadcast_to(scales**2, (len(counts), layout.tables))
