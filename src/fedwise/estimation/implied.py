"""Implied: what the interactions of a client's tables tell of its marginals.

Clients share the pool's odds ratios far more than its marginals. The interaction of a table with the pool's odds ratios
follows from the marginals, so a client's noisy interactions measure its marginals a second time. To first order in the
deviations d of the client's marginals from the pool's,

    interaction of table j − that of the pool = B_j d + r_j,

with B_j the slope of the interaction by the marginals at fixed odds ratios (`slope`), and r_j what the client's own
association adds. r_j has variance f_i·s_j a coordinate: s_j of the table by moments over the clients, f_i of the client
by moments over its tables, so that a client unlike the others is not forced into their pattern. With noise variances u
of the sums and v_j of the interactions, least squares gives

    d̂ = C (d⁰/u + Σ_j B_jᵀ (interaction − pool's)/(v_j + f_i s_j)),    C⁻¹ = 1/u + Σ_j B_jᵀ B_j/(v_j + f_i s_j),

where d⁰ is what the sums of the tables say. Where associations are the clients' own, d̂ is d⁰.

The error of marginals falls by an eighth to a quarter, whatever the noise. But what is left of it then leans to the
pool's pattern, and the clients worth choosing are those off it: where sums are precise, federations are chosen no
better by it. So interactions count by `noise_trust` only, which is 0 until noise is nearly half of what tells the
levels of clients apart. Figures: docs/results/variants.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ..schema.layout import Layout
from .fitting import centre, margin_system

Floats = npt.NDArray[np.float64]

#: Observations that the factor 1 on a client's own associations is worth.
_FACTOR_PRIOR = 1.0
#: Numbers of the clients' precision matrices held at a time: 32 MB.
_BLOCK = 4_000_000
#: Share of noise in the levels' deviations from which interactions count, and from which they count in full.
_BEGIN, _FULL = 0.45, 0.65
#: Clients times the cube of the coordinates up to which marginals are improved: some seconds.
_WORK = 2e10


@lru_cache(maxsize=64)
def contrasts(levels: int) -> Floats:
    """Orthonormal basis of deviations of `levels` proportions, which sum to zero. Shape (levels, levels − 1)."""
    basis = np.zeros((levels, levels - 1))
    for column in range(levels - 1):
        basis[: column + 1, column] = 1.0
        basis[column + 1, column] = -(column + 1.0)
        basis[:, column] /= np.sqrt((column + 1.0) * (column + 2.0))
    basis.flags.writeable = False
    return basis


def noise_trust(noise: Sequence[Floats], spread: Sequence[Floats]) -> Floats:
    """How much interactions count, from 0 to 1 for each pool: by the mean of v/(τ² + v) over levels and clients.

    Parameters
    ----------
    noise, spread
        For each variable v, of shape (pools, clients, 1), and τ², of shape (pools, levels).
    """
    shares = []
    for v, tau in zip(noise, spread, strict=True):
        whole = tau[:, None] + v
        part = np.divide(np.broadcast_to(v, whole.shape), whole, out=np.zeros_like(whole), where=whole > 0)
        shares.append(part.mean(axis=(1, 2)))
    return np.asarray(np.clip((np.mean(shares, axis=0) - _BEGIN) / (_FULL - _BEGIN), 0.0, 1.0))


def slope(tables: Floats) -> Floats:
    """Slope of the interactions of proportions (…, a, b) by their marginals, at fixed odds ratios.

    p moves by p·(α_x + β_y), with α and β such that the marginals move as asked. By the contrasts of the rows, then
    those of the columns: shape (…, a·b, a + b − 2).
    """
    a, b = tables.shape[-2:]
    asked = np.zeros((a + b, a + b - 2))
    asked[:a, : a - 1], asked[a:, a - 1 :] = contrasts(a), contrasts(b)
    terms = np.linalg.solve(margin_system(tables), asked)
    terms = np.moveaxis(terms, -1, -2)
    moved = tables[..., None, :, :] * (terms[..., :a, None] + terms[..., None, a:])
    flat = centre(moved).reshape(*tables.shape[:-2], a + b - 2, a * b)
    return np.asarray(np.swapaxes(flat, -1, -2))


@dataclass(frozen=True)
class _Told:
    """What the interactions of one table tell: for each side its coordinates, slope, and slope times deviation.

    Each `spread` (s) has shape (pools,), `noise` and `excess` (beyond the expected square) (pools, clients).
    """

    sides: tuple[tuple[slice, Floats, Floats], ...]
    noise: Floats
    excess: Floats
    expected: Floats
    spread: Floats
    free: int


def improved(
    deviation: Floats,
    noise: Floats,
    interactions: Floats,
    sizes: Floats,
    table_noise: Floats,
    tables: Sequence[Floats],
    weights: Sequence[Floats],
    layout: Layout,
    trust: Floats,
) -> tuple[Floats, Floats]:
    """Deviations of the marginals by sums and interactions together, and the noise variance of each level.

    Parameters
    ----------
    deviation
        Shape (pools, clients, levels): deviation of the sums from the pool's, in proportions.
    noise
        Shape (clients, variables): noise variance of the effects, in counts².
    interactions, sizes
        Shapes (pools, clients, cells) and (pools, clients): counts.
    table_noise
        Shape (clients, tables): σ².
    tables
        For each table the pool's proportions, shape (pools, a, b).
    weights
        For each table how much each client counts where s_j is estimated, shape (pools, clients).
    trust
        Shape (pools,): how much interactions count.
    """
    at = _places(layout)
    width = at[-1].stop
    first = np.concatenate(
        [deviation[..., layout.marginal(v)] @ contrasts(a) for v, a in enumerate(layout.sizes)], axis=-1
    )
    own = np.repeat(noise, np.asarray(layout.sizes) - 1, axis=-1) / sizes[..., None] ** 2
    if first[..., 0].size * float(width) ** 3 > _WORK:
        found, covariances = first, _diagonals(own, at)
    else:
        told = [
            _tell(j, at, first, own, interactions, sizes, table_noise[:, j], table, weight, layout)
            for j, (table, weight) in enumerate(zip(tables, weights, strict=True))
            if min(layout.shapes[j]) > 1
        ]
        found, covariances = _solve(first, own, told, at, trust)
    moved, left = np.empty_like(deviation), np.empty_like(deviation)
    for variable, (levels, covariance) in enumerate(zip(layout.sizes, covariances, strict=True)):
        here, basis = layout.marginal(variable), contrasts(levels)
        moved[..., here] = found[..., at[variable]] @ basis.T
        left[..., here] = np.sum((basis @ covariance) * basis, axis=-1)
    return moved, left


def _tell(
    j: int,
    at: list[slice],
    first: Floats,
    own: Floats,
    interactions: Floats,
    sizes: Floats,
    noise: Floats,
    table: Floats,
    weight: Floats,
    layout: Layout,
) -> _Told:
    """What table j tells; squares of B d are had from BᵀB, so that no array of all cells is kept."""
    (x, y), (a, b) = layout.pairs[j], layout.shapes[j]
    by, free = slope(table), (a - 1) * (b - 1)
    beyond = interactions[..., layout.slice(j)] / sizes[..., None]
    beyond -= centre(table).reshape(-1, 1, a * b)
    v = noise / sizes**2
    square, expected = np.einsum("pcm,pcm->pc", beyond, beyond), v * free
    carried = beyond @ by
    gram = np.swapaxes(by, -1, -2) @ by
    both = np.concatenate([first[..., at[x]], first[..., at[y]]], axis=-1)
    square += np.sum(both * (both @ gram - 2.0 * carried), axis=-1)
    variance = np.concatenate([own[..., at[x]], own[..., at[y]]], axis=-1)
    expected = expected + (variance @ np.einsum("pmm->pm", gram)[..., None])[..., 0]
    excess = (square - expected) / free
    spread = np.maximum(np.sum(weight * excess, axis=-1) / weight.sum(axis=-1), 0.0)
    sides = (at[x], by[..., : a - 1], carried[..., : a - 1]), (at[y], by[..., a - 1 :], carried[..., a - 1 :])
    return _Told(sides, v, excess, expected / free, spread, free)


def _factor(told: list[_Told], shape: tuple[int, ...]) -> Floats:
    """How much more than others a client's tables lie off the pool's pattern: a factor on every s_j.

    The mean of excess/s_j by precision (a mean square of `free` normal numbers), drawn to 1.
    """
    top, bottom = np.zeros(shape), np.zeros(shape)
    for table in told:
        s = table.spread[:, None]
        whole = s + table.expected
        trust = table.free * np.divide(s, whole**2, out=np.zeros_like(whole), where=whole > 0)
        top += trust * table.excess
        bottom += trust * s
    factor = np.divide(np.maximum(top, 0.0), bottom, out=np.ones(shape), where=bottom > 0)
    known = 0.5 * bottom
    return np.asarray((_FACTOR_PRIOR + known * factor) / (_FACTOR_PRIOR + known))


def _solve(
    first: Floats, own: Floats, told: list[_Told], at: list[slice], trust: Floats
) -> tuple[Floats, tuple[Floats, ...]]:
    """Least squares of every client: d̂ in contrasts, and for each variable its covariance."""
    pools, clients, width = first.shape
    # A client or variable without noise stays as it is.
    noisy = own > 0
    start = np.divide(1.0, own, out=np.ones_like(own), where=noisy)
    right, found = start * first, np.empty_like(first)
    covariances = _diagonals(own, at)
    factor = _factor(told, (pools, clients))
    uses = [
        trust[:, None] * np.divide(1.0, v, out=np.zeros_like(v), where=v > 0)
        for v in (table.noise + factor * table.spread[:, None] for table in told)
    ]
    for table, use in zip(told, uses, strict=True):
        for side, _, carried in table.sides:
            right[..., side] += use[..., None] * carried
    grams = [
        [
            (side, other, np.swapaxes(by, -1, -2) @ second)
            for side, by, _ in table.sides
            for other, second, _ in table.sides
        ]
        for table in told
    ]
    for some in _blocks(clients, max(1, _BLOCK // (pools * max(width, 1) ** 2))):
        precision = np.zeros((pools, some.stop - some.start, width, width))
        diagonal = np.arange(width)
        precision[..., diagonal, diagonal] = start[:, some]
        for use, products in zip(uses, grams, strict=True):
            for side, other, gram in products:
                precision[..., side, other] += use[:, some, None, None] * gram[:, None]
        covariance = np.linalg.inv(precision)
        found[:, some] = (covariance @ right[:, some, :, None])[..., 0]
        for side, kept in zip(at, covariances, strict=True):
            both = noisy[:, some, side]
            kept[:, some] = np.where(both[..., None] & both[..., None, :], covariance[..., side, side], 0.0)
    return np.where(noisy, found, first), covariances


def _diagonals(own: Floats, at: list[slice]) -> tuple[Floats, ...]:
    """Covariance of each variable's contrasts where they are measured by the sums alone."""
    return tuple(own[..., side, None] * np.eye(side.stop - side.start) for side in at)


def _places(layout: Layout) -> list[slice]:
    """Where each variable's contrasts stand."""
    edges = np.concatenate([[0], np.cumsum(np.asarray(layout.sizes) - 1)]).tolist()
    return [slice(low, high) for low, high in pairwise(edges)]


def _blocks(clients: int, step: int) -> Iterator[slice]:
    for start in range(0, clients, step):
        yield slice(start, min(start + step, clients))
