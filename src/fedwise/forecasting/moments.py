"""Moments: the second moments of the model's indicators, read off the pair tables.

For indicators z of a record (1, then every level of every variable) and its label y, the tables are

    G = Σ z zᵀ     blocks of two variables: their pair table; diagonal blocks: marginals; first row: totals
    b = Σ z y      feature × target tables; y is `Labels.values`, of several classes a row for each but the first

Both are sums over records, so a federation's moments are the sums of its clients'.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import FedwiseError
from ..estimation.consistency import consistent
from ..estimation.estimates import Estimates
from ..objective.weights import term_of
from ..schema.layout import Layout
from ..schema.schema import Schema
from .design import Design

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_WEIGHT = {"direct_bias": "alpha", "proxy_bias": "beta", "redundancy": "gamma", "signal": "lam"}


@dataclass(frozen=True, eq=False)
class Moments:
    """Second moments of indicators.

    Parameters
    ----------
    gram
        Shape (..., width, width): Σ z zᵀ.
    cross
        Shape (..., width): Σ z y; of several classes (..., outputs, width).
    totals
        Shape (...,): records.
    """

    gram: Floats
    cross: Floats
    totals: Floats


def consistent_counts(estimates: Estimates) -> tuple[Floats, Floats, Floats]:
    """Cells, marginals and totals that agree with one another: plain estimates are adjusted first."""
    if estimates.estimator != "plain":
        return estimates.cells, estimates.marginals, estimates.totals
    cells, marginals, totals, _ = consistent(estimates.cells, estimates.layout, estimates.sigmas)
    return cells, marginals, totals


def table_sigmas(estimates: Estimates) -> Floats:
    """Noise of each table, root mean square over the clients. Shape (tables,)."""
    return np.asarray(np.sqrt(np.mean(estimates.sigmas**2, axis=0)))


def moments(design: Design, layout: Layout, cells: Floats, marginals: Floats, totals: Floats) -> Moments:
    """Moments of one client, or of a stack of them, from consistent counts.

    Two sensitive attributes share no table: within a client they count as independent.

    Raises
    ------
    FedwiseError
        A table the model needs was not asked for; the message names the weight that asks for it.
    """
    schema = design.schema
    where = _tables(layout)
    stack = cells.shape[:-1]
    gram = np.zeros((*stack, design.width, design.width))
    cross = np.zeros((*stack, design.labels.outputs, design.width))
    gram[..., 0, 0] = totals
    target = schema.target
    values = design.labels.values
    cross[..., 0] = marginals[..., layout.marginal(target)] @ values
    for i, (v, first) in enumerate(zip(design.variables, design.first, strict=True)):
        here = slice(int(first), int(first) + schema.sizes[v])
        counts = marginals[..., layout.marginal(v)]
        gram[..., 0, here] = counts
        gram[..., here, 0] = counts
        gram[..., range(here.start, here.stop), range(here.start, here.stop)] = counts
        cross[..., here] = np.swapaxes(table(where, layout, cells, v, target, schema) @ values, -1, -2)
        for u, other in zip(design.variables[:i], design.first[:i], strict=True):
            there = slice(int(other), int(other) + schema.sizes[u])
            if term_of(schema, u, v) is None and (u, v) not in where:
                with np.errstate(divide="ignore", invalid="ignore"):
                    block = counts[..., :, None] * marginals[..., None, layout.marginal(u)]
                    block = np.nan_to_num(block / np.asarray(totals)[..., None, None])
            else:
                block = table(where, layout, cells, v, u, schema)
            gram[..., here, there] = block
            gram[..., there, here] = np.swapaxes(block, -1, -2)
    if design.labels.kind != "classes":
        cross = cross[..., 0, :]
    return Moments(gram, cross, np.asarray(totals, dtype=np.float64))


def noise_gram(design: Design, layout: Layout, sigmas: Floats) -> Floats:
    """Noise variance of each entry of one client's `gram` off the diagonal blocks. Shape (width, width)."""
    where = _tables(layout)
    variance = np.zeros((design.width, design.width))
    for i, (v, first) in enumerate(zip(design.variables, design.first, strict=True)):
        for u, other in zip(design.variables[:i], design.first[:i], strict=True):
            found = where.get((v, u))
            if found is not None:
                here = slice(int(first), int(first) + design.schema.sizes[v])
                there = slice(int(other), int(other) + design.schema.sizes[u])
                variance[here, there] = variance[there, here] = 0.0
                variance[here, there] += sigmas[found[0]] ** 2
                variance[there, here] += sigmas[found[0]] ** 2
    return variance


def _tables(layout: Layout) -> dict[tuple[int, int], tuple[int, bool]]:
    """Number of the table of each ordered pair of variables, and whether it must be transposed."""
    found: dict[tuple[int, int], tuple[int, bool]] = {}
    for j, (x, y) in enumerate(layout.pairs):
        found[x, y] = (j, False)
        found[y, x] = (j, True)
    return found


def table(
    where: dict[tuple[int, int], tuple[int, bool]],
    layout: Layout,
    cells: Floats,
    v: int,
    u: int,
    schema: Schema,
) -> Floats:
    """The table of variables `v` (rows) and `u` (columns), or an error that says which plan has it."""
    if (v, u) not in where:
        weight = _WEIGHT.get(term_of(schema, v, u) or "", "gamma")
        raise FedwiseError(
            f"forecast must have the table {schema.names[v]} × {schema.names[u]}, which this plan does not ask "
            f"for; make the plan with weight {weight} above 0"
        )
    j, flipped = where[v, u]
    found = cells[..., layout.slice(j)].reshape(*cells.shape[:-1], *layout.shapes[j])
    return np.swapaxes(found, -1, -2) if flipped else found


def summed(found: Moments, members: Ints) -> Moments:
    """Moments of some clients together."""
    return Moments(
        found.gram[members].sum(axis=0), found.cross[members].sum(axis=0), found.totals[members].sum()
    )


def marginal_errors(estimates: Estimates) -> Floats:
    """Standard error of each level's pooled count: the best that one of its tables gives."""
    layout = estimates.layout
    precision = np.zeros((len(estimates.clients), len(layout.sizes)))
    with np.errstate(divide="ignore"):
        for (x, y), (a, b), sigmas in zip(layout.pairs, layout.shapes, estimates.sigmas.T, strict=True):
            precision[:, x] += 1.0 / (b * sigmas**2)
            precision[:, y] += 1.0 / (a * sigmas**2)
        variance = np.sum(1.0 / precision, axis=0)
    spread = np.repeat(np.where(np.isfinite(variance), variance, 0.0), layout.sizes)
    return np.asarray(np.sqrt(spread), dtype=np.float64)


def noise_norm(design: Design, estimates: Estimates) -> float:
    """Ridge, in records and for one typical client, that covers the noise in the tables.

    A symmetric matrix of independent noise with variances v_ab has spectral norm near
    2·√(mean_a Σ_b v_ab); half of it ranks best (docs/results/variants.md).
    """
    variance = noise_gram(design, estimates.layout, table_sigmas(estimates))
    used = (design.projection != 0).any(axis=1)
    used[0] = False
    return float(np.sqrt(variance[np.ix_(used, used)].sum(axis=1).mean())) if used.any() else 0.0


def noisiness(estimates: Estimates) -> Floats:
    """Noise variance of each client as a multiple of the typical one's: all 1 where all have one ε."""
    typical = table_sigmas(estimates)
    if not typical.all() or (estimates.sigmas == estimates.sigmas[:1]).all():
        return np.ones(len(estimates.clients))
    return np.asarray(np.mean((estimates.sigmas / typical) ** 2, axis=1))
