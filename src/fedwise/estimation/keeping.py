"""Keeping: how much of what a release shows is kept, against what its noise explains.

A deviation of noise variance v is kept by τ²/(τ² + v), with τ² the variance that is expected of it, and a number of
records is positive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..deferred import Deferred

if TYPE_CHECKING:
    from scipy import special
else:
    special = Deferred("scipy.special")

Floats = npt.NDArray[np.float64]

#: Squared deviation, in units of its variance, beyond which it is kept as it is.
DOUBT = 9.0


def positive(totals: Floats, variance: npt.ArrayLike) -> Floats:
    """Number of records given a noisy total: mean of the noise model's N(total, variance) above zero.

        n̂ = t + s·φ(t/s)/Φ(t/s)

    Equal to the noisy total where that is large against its noise, and positive always.
    """
    known = np.broadcast_to(np.sqrt(np.asarray(variance, dtype=np.float64)), totals.shape)
    s = np.where(known > 0, known, 1.0)
    z = totals / s
    near = np.maximum(z, -25.0)
    mean = near + np.exp(-0.5 * near**2 - 0.5 * np.log(2.0 * np.pi) - special.log_ndtr(near))
    # Far below zero the sum cancels; there its expansion is exact.
    far = np.minimum(z, -25.0)
    above = s * np.where(z > -25.0, mean, (1.0 - 2.0 / far**2) / -far)
    return np.asarray(np.where(known > 0, above, np.maximum(totals, 1e-9)))


def widened(tau: Floats, deviation: Floats, v: Floats) -> Floats:
    """τ² of each client, wider where its own deviation says so: τ² + max(d² − 9(τ² + v), 0).

    Clients are not drawn from one normal law: with a common τ² a client that is d standard deviations off
    would be biased by d·v/√(τ² + v), without bound. Here a deviation within three standard deviations is
    shrunk as before, and the bias of one far beyond goes to zero.
    """
    return np.asarray(tau + np.maximum(deviation**2 - DOUBT * (tau + v), 0.0))


def scaled_variance(deviation: Floats, scale: Floats, v: Floats) -> Floats:
    """Prior variance θ·scale with θ by iterated, precision-weighted moments: E d² = θ·scale + v.

    Shapes (pools, a, b) and (pools,) for the noise variance; one θ for each pool.
    """
    pools = len(scale)
    theta, noise = np.ones((pools, 1)), v[:, None]
    known, square = scale.reshape(pools, -1), (deviation**2).reshape(pools, -1) - noise
    for _ in range(20):
        weight = known / (theta * known + noise + 1e-300) ** 2
        weight /= weight.max(axis=1, keepdims=True) + 1e-300
        bottom = np.add.reduce(weight * known, axis=1, keepdims=True)
        top = np.add.reduce(weight * square, axis=1, keepdims=True)
        before = theta
        theta = np.maximum(np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 0), 1e-6)
        if (theta == before).all():
            break
    return theta[:, :, None] * scale


def kept(tau: Floats, v: Floats) -> Floats:
    """τ² / (τ² + v): the part of a deviation that is kept; all of it where there is no noise."""
    whole = np.asarray(tau + v, dtype=np.float64)
    if np.min(v, initial=np.inf) > 0:
        return np.asarray(tau / whole)
    top = np.broadcast_to(np.asarray(tau, dtype=np.float64), whole.shape)
    return np.where(np.asarray(v) > 0, np.divide(top, whole, out=np.zeros_like(whole), where=whole > 0), 1.0)
