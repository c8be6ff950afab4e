"""Client errors: how far the noise may move each client's pull on the loss of a federation."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..estimation.estimates import Estimates, Posterior
from ..estimation.fitting import margin_factors
from ..estimation.uncertainty import given, level_variance
from ..objective.information import pointwise
from ..objective.weights import Weights, pair_weights

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def client_errors(
    estimates: Estimates, posterior: Posterior, members: Ints, clients: Ints, weights: Weights
) -> Floats:
    """Standard deviation of g·e_i for each of `clients`: g the slope of the loss at `members`, e_i the client's error.

    To first order the true loss of a federation V near `members` differs from its estimate by Σ_{i∈V} g·e_i plus
    what all clients have in common. e_i has the posterior's independent parts: the number of records, the
    marginals at fixed odds ratios, and the interactions along and off the direction of the pool's association.
    """
    layout = estimates.layout
    signed = pair_weights(estimates.schema, layout, weights)
    total = float(estimates.totals[members].sum())
    whole = estimates.cells[members].sum(axis=0) / total
    sizes = estimates.totals[clients]
    slope, by_level = np.zeros(layout.cells), np.zeros(layout.levels)
    variance = np.zeros(len(clients))
    for j in np.flatnonzero(signed).tolist():
        here, (x, y) = layout.slice(j), layout.sides(j)
        table = whole[here].reshape(layout.shapes[j])
        pmi = signed[j] * pointwise(table)
        down, across = margin_factors(table, table * pmi)
        slope[here] = pmi.ravel()
        by_level[x] += down
        by_level[y] += across
        centred = (pmi - down[:, None] - across).ravel()
        direction = posterior.direction[here]
        v = (estimates.sigmas[clients, j] ** 2 / sizes**2)[:, None]
        prior = posterior.spread[j] * posterior.spread_factor[clients, None] * posterior.pool[here]
        left = np.divide(prior * v, prior + v, out=np.zeros_like(prior), where=prior > 0)
        variance += posterior.strength[clients, j] * float(centred @ direction) ** 2
        variance += given(left, centred, direction)
    variance += level_variance(layout, posterior.marginals[clients], by_level)
    pull = (estimates.cells[clients] / sizes[:, None] - whole) @ slope
    return np.asarray(np.sqrt(sizes**2 * variance + posterior.totals[clients] * pull**2) / total)


def slope_at(estimates: Estimates, members: Ints, weights: Weights) -> Floats:
    """Shape (cells,): slope of the loss in each cell's proportion, at the joint tables of `members`."""
    layout = estimates.layout
    whole = estimates.cells[members].sum(axis=0) / float(estimates.totals[members].sum())
    signed, slope = pair_weights(estimates.schema, layout, weights), np.zeros(layout.cells)
    for j in np.flatnonzero(signed).tolist():
        here = layout.slice(j)
        slope[here] = signed[j] * pointwise(whole[here].reshape(layout.shapes[j])).ravel()
    return slope


def known_share(
    estimates: Estimates,
    weights: Weights,
    among: npt.NDArray[np.bool_] | None = None,
    *,
    alone: bool = False,
) -> float:
    """The part of what tells clients apart that the releases show, between 0 and 1, by the estimates' own account.

        R = Var(g·p_i) / (Var(g·p_i) + mean s_i²)

    with g the slope of the loss at the pool, p_i the estimated proportions of client i and s_i its standard deviation.
    With `among` the s_i of these clients count, and with `alone` only their p_i as well. Estimates without a posterior
    do not say: 1.
    """
    if estimates.posterior is None or not np.any(estimates.sigmas):
        return 1.0
    everybody, total = np.arange(len(estimates.clients)), float(estimates.totals.sum())
    pull = (estimates.cells / estimates.totals[:, None]) @ slope_at(estimates, everybody, weights)
    errors = client_errors(estimates, estimates.posterior, everybody, everybody, weights)
    counted = everybody if among is None else np.flatnonzero(among)
    unknown = float(np.mean(((errors * total / estimates.totals) ** 2)[counted]))
    known = float(np.var(pull[counted] if alone else pull))
    return known / (known + unknown) if known + unknown > 0 else 1.0
