"""Factors: what clients have in common beyond the pool's mean.

Clients that differ in one marginal differ in others: where more people are young, more are single. A few
factors f_i with loadings Λ carry such differences, and lend a noisy marginal what the others know:

    deviation of client i = Λ f_i + e_i,   f_i ~ N(0, I),   e_i ~ N(0, Ψ),   observed with noise N(0, D_i).

Λ and Ψ (diagonal) are fitted by expectation–maximisation with the noise D_i known. Where there is nothing
in common Λ shrinks away, and what is left is shrinkage of each level on its own.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

#: Most factors, and clients needed for each.
MOST, CLIENTS_EACH = 8, 6
_ROUNDS = 30


def factor_posterior(deviation: Floats, noise: Floats, spread: Floats) -> tuple[Floats, Floats]:
    """Posterior mean and variance of the true deviations.

    Parameters
    ----------
    deviation, noise
        Shape (clients, levels): observed deviation from the pool and its noise variance.
    spread
        Shape (levels,): between-client variance of each level, τ².

    Returns
    -------
    mean, variance
        Shape (clients, levels). Levels without spread stay at the pool.
    """
    clients = deviation.shape[0]
    live = np.flatnonzero(spread > 0)
    mean, variance = np.zeros_like(deviation), np.zeros_like(deviation)
    if len(live) == 0:
        return mean, variance
    unit = np.sqrt(spread[live])
    x, d = deviation[:, live] / unit, noise[:, live] / unit**2
    rank = min(MOST, clients // CLIENTS_EACH, len(live))
    if rank == 0:
        found, left = x / (1.0 + d), d / (1.0 + d)
    else:
        loadings, own = _start(x, d, rank)
        for _ in range(_ROUNDS):
            loadings, own = _step(x, d, loadings, own)
        found, left, _, _ = _posterior(x, d, loadings, own)
    mean[:, live], variance[:, live] = found * unit, left * unit**2
    return mean, variance


def _start(x: Floats, d: Floats, rank: int) -> tuple[Floats, Floats]:
    """Loadings from the singular vectors of the whitened deviations; at most 90% of a level's variance."""
    _, values, right = np.linalg.svd(x / np.sqrt(1.0 + d), full_matrices=False)
    loadings = right[:rank].T * np.sqrt(np.maximum(values[:rank] ** 2 / len(x) - 1.0, 0.05))
    common = np.sum(loadings**2, axis=1)
    loadings *= np.minimum(1.0, np.sqrt(0.9 / np.maximum(common, 1e-12)))[:, None]
    return loadings, np.maximum(1.0 - np.sum(loadings**2, axis=1), 0.1)


def _posterior(x: Floats, d: Floats, loadings: Floats, own: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Mean and variance of the deviations, mean and covariance of the factors, given the model."""
    rank = loadings.shape[1]
    whole = own + d
    products = (loadings[:, :, None] * loadings[:, None, :]).reshape(-1, rank * rank)
    precision = np.eye(rank) + ((1.0 / whole) @ products).reshape(-1, rank, rank)
    covariance = np.linalg.inv(precision)
    factors = np.einsum("crs,cs->cr", covariance, (x / whole) @ loadings)
    keep = own / whole
    common = factors @ loadings.T
    mean = np.asarray(common + keep * (x - common), dtype=np.float64)
    spread = covariance.reshape(-1, rank * rank) @ products.T
    variance = keep * d + (1.0 - keep) ** 2 * spread
    return mean, variance, np.asarray(factors, dtype=np.float64), np.asarray(covariance, dtype=np.float64)


def _step(x: Floats, d: Floats, loadings: Floats, own: Floats) -> tuple[Floats, Floats]:
    """One round of expectation–maximisation."""
    rank = loadings.shape[1]
    mean, variance, factors, covariance = _posterior(x, d, loadings, own)
    keep = own / (own + d)
    second = covariance + factors[:, :, None] * factors[:, None, :]
    shared = ((1.0 - keep).T @ second.reshape(-1, rank * rank)).reshape(-1, rank, rank)
    cross = np.einsum("mr,mrs->ms", loadings, shared) + (keep * x).T @ factors
    fitted = np.linalg.solve(second.sum(axis=0) + 1e-6 * np.eye(rank), cross.T).T
    left = np.sum(mean**2 + variance, axis=0) - np.sum(fitted * cross, axis=1)
    return fitted, np.maximum(left / len(x), 1e-3)
