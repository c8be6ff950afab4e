"""Population: how far a client's people differ from the pool's, and which classes it lacks. Facts, not accusations.

For client i and variable v, from the consistent marginals p and the middle m of the clients that look alike,

    S = Σ_l ((p_l − m_l)² − noise_l) / m_l

is free of the privacy noise on average. The root of its mean over the variables is the shift; a place may have it for
good reasons, so no client is a suspect for it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..schema.schema import Schema
from .attenuation import Shares
from .outliers import standardised

Floats = npt.NDArray[np.float64]

#: Levels rarer than this count as if they were this common.
_RARE = 0.02
#: Variables named at most.
_NAMED = 2
#: A class within this many standard errors of 0 is lacking, where the pool's share would be at least that many.
_ABSENT, _SEEN = 2.0, 5.0


class Lacking(NamedTuple):
    """The classes of one target that a client's tables do not show, most missed first.

    `records` and `error` are the noisy number of records of the first one, `z` how many errors it is short of the
    pool's share.
    """

    target: str
    classes: tuple[str, ...]
    records: float
    error: float
    z: float


def shifts(shares: Shares, schema: Schema) -> tuple[Floats, Floats, Floats, tuple[tuple[str, ...], ...]]:
    """Shift of each client, its standard error by noise, z against the pool, and the variables furthest off.

    Returns
    -------
    value, error, z
        Shape (clients,).
    details
        Names of at most two variables for each client, those furthest from the pool's first.
    """
    layout = shares.layout
    by_variable, variance = [], np.zeros(len(shares.sizes))
    for v in range(len(layout.sizes)):
        p = shares.marginals[:, layout.marginal(v)]
        middle = np.maximum(np.median(p[shares.known], axis=0), _RARE)
        levels = p.shape[1]
        noise = (shares.effects[:, v] / shares.sizes**2)[:, None] * (1 - 1 / levels)
        noise = noise + np.clip(p, 0.0, 1.0) / shares.sizes[:, None]
        by_variable.append(np.sum(((p - middle) ** 2 - noise) / middle, axis=1))
        variance += 2.0 * np.sum((noise / middle) ** 2, axis=1)
    found = np.stack(by_variable, axis=1)
    square, noise_of_square = found.mean(axis=1), variance / found.shape[1] ** 2
    value = np.sqrt(np.maximum(square, 0.0))
    # The root of a variable near 0 is about as exact as the root of its error.
    error = np.sqrt(noise_of_square) / (2.0 * np.maximum(value, noise_of_square**0.25) + 1e-12)
    z = standardised(value[:, None], error[:, None] ** 2)[:, 0]
    order = np.argsort(-found, axis=1, kind="stable")[:, :_NAMED]
    details = tuple(tuple(schema.names[v] for v in row) for row in order)
    return value, error, z, details


def lacking(shares: Shares, schema: Schema) -> list[tuple[Lacking, ...]]:
    """For each client, the classes that it has no more of than noise while the pool's share of them would be seen.

    A class of count c with standard error s is lacking where c ≤ 2s and m·n ≥ 5s, with m the middle share of the
    clients and n the client's records. A client whose records are too few to tell lacks nothing.
    """
    found: list[list[Lacking]] = [[] for _ in shares.sizes]
    for target in schema.targets:
        p = shares.marginals[:, shares.layout.marginal(target)]
        middle = np.median(p[shares.known], axis=0)
        count, expected = p * shares.sizes[:, None], middle * shares.sizes[:, None]
        error = np.sqrt(shares.effects[:, target])[:, None] * np.ones_like(p)
        # Exact counts have no noise: a class is lacking where there is none of it.
        error = np.maximum(error, 1e-9)
        short = (expected - count) / error
        absent = (count <= _ABSENT * error) & (expected >= _SEEN * error) & shares.known[:, None]
        for i in np.flatnonzero(absent.any(axis=1)):
            order = [c for c in np.argsort(-short[i], kind="stable") if absent[i, c]]
            first = order[0]
            names = tuple(schema.columns[target].labels[c] for c in order)
            found[i].append(
                Lacking(
                    schema.names[target],
                    names,
                    float(count[i, first]),
                    float(error[i, first]),
                    float(short[i, first]),
                )
            )
    return [tuple(one) for one in found]
