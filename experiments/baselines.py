"""Baselines: federations chosen by one plain rule from the same estimates, without the loss or the forecast."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fedwise.estimation.estimates import Estimates

Floats = npt.NDArray[np.float64]

#: Random federations from which the search for the nearest one starts, beside the nearest clients.
_STARTS = 4


def label_rates(estimates: Estimates) -> Floats:
    """Share of the positive class in each client, shape (clients,)."""
    target = estimates.schema.target
    first = int(np.sum(estimates.layout.sizes[:target]))
    found = estimates.marginals[:, first : first + 2]
    return np.asarray(found[:, 1] / found.sum(axis=1), dtype=np.float64)


def highest_label_rate(estimates: Estimates, k: int) -> list[str]:
    """The clients with the largest share of positives."""
    return _names(estimates, np.argsort(-label_rates(estimates), kind="stable")[:k])


def nearest_label_rate(estimates: Estimates, k: int) -> list[str]:
    """The clients whose share of positives is nearest to the pool's."""
    rates = label_rates(estimates)
    pooled = float(rates @ estimates.totals / estimates.totals.sum())
    return _names(estimates, np.argsort(np.abs(rates - pooled), kind="stable")[:k])


def largest(estimates: Estimates, k: int) -> list[str]:
    """The clients with the most records."""
    return _names(estimates, np.argsort(-estimates.totals, kind="stable")[:k])


def distances(estimates: Estimates, federations: npt.NDArray[np.int64]) -> Floats:
    """Mean total variation between a federation's summed pair tables and the pool's.

    Parameters
    ----------
    federations
        Positions of clients, shape (batch, k).
    """
    cells = estimates.cells
    pool = cells.sum(axis=0) / estimates.totals.sum()
    sums = np.zeros((len(federations), cells.shape[1]))
    for member in federations.T:
        sums += cells[member]
    shares = sums / estimates.totals[federations].sum(axis=1)[:, None]
    return np.asarray(np.abs(shares - pool).sum(axis=1) / (2 * estimates.layout.tables), dtype=np.float64)


def nearest_to_pool(estimates: Estimates, k: int, *, seed: int = 0) -> list[str]:
    """The federation with the least distance to the pool that swaps of one client find, from several starts."""
    count = len(estimates.clients)
    alone = distances(estimates, np.arange(count)[:, None])
    rng = np.random.default_rng([seed, k, 0xD157])
    starts = [np.argsort(alone, kind="stable")[:k]]
    starts += [rng.choice(count, k, replace=False) for _ in range(_STARTS)]
    found = [_swap(estimates, start) for start in starts]
    return _names(estimates, min(found, key=lambda pair: pair[0])[1])


def _swap(estimates: Estimates, members: npt.NDArray[np.int64]) -> tuple[float, npt.NDArray[np.int64]]:
    """Make the best swap while there is one that brings the federation nearer."""
    here = float(distances(estimates, members[None])[0])
    while True:
        outside = np.setdiff1d(np.arange(len(estimates.clients)), members)
        near = np.repeat(members[None], len(members) * len(outside), axis=0)
        for i in range(len(members)):
            near[i * len(outside) : (i + 1) * len(outside), i] = outside
        if not len(near):
            return here, members
        values = distances(estimates, near)
        best = int(np.argmin(values))
        if values[best] >= here - 1e-12:
            return here, members
        here, members = float(values[best]), near[best]


def _names(estimates: Estimates, positions: Sequence[int] | npt.NDArray[np.int64]) -> list[str]:
    return sorted(estimates.clients[int(i)] for i in positions)


#: The rules by the kind of federation they give.
RULES = {
    "label_rate": highest_label_rate,
    "label_rate_pool": nearest_label_rate,
    "size": largest,
    "distance": nearest_to_pool,
}
