"""Population: how far a client's people differ from the pool's, variable by variable. A fact, not an accusation.

For client i and variable v, from the consistent marginals p and the middle m of the clients that look alike,

    S = Σ_l ((p_l − m_l)² − noise_l) / m_l

is free of the privacy noise on average. The root of its mean over the variables is the shift; a place may have it for
good reasons, so no client is a suspect for it.
"""

from __future__ import annotations

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
