"""Factors: what clients have in common beyond the pool's mean.

Clients that differ in one marginal differ in others: where more people are young, more are single. A few
factors f_i with loadings Λ describe such differences, so that each marginal helps to estimate the others:

    deviation of client i = Λ f_i + e_i,   f_i ~ N(0, I),   e_i ~ N(0, Ψ),   observed with noise N(0, D_i).

Λ and Ψ (diagonal) are fitted by expectation–maximisation with the noise D_i known. Each factor has a prior
N(0, 1/α_r) on its loadings with α_r fitted too (automatic relevance): a factor that the pool does not support
vanishes, and what is left is shrinkage of each level on its own.
"""

from __future__ import annotations

from dataclasses import dataclass

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
        model = _start(x, d, rank)
        for _ in range(_ROUNDS):
            model = _step(x, d, model)
        found, left, _, _ = _posterior(x, d, model)
    mean[:, live], variance[:, live] = found * unit, left * unit**2
    return mean, variance


@dataclass(frozen=True)
class _Model:
    """Loadings (levels, rank), Ψ (levels,) and α (rank,)."""

    loadings: Floats
    own: Floats
    relevance: Floats


def _start(x: Floats, d: Floats, rank: int) -> _Model:
    """Loadings from the singular vectors of the whitened deviations; at most 90% of a level's variance."""
    _, values, right = np.linalg.svd(x / np.sqrt(1.0 + d), full_matrices=False)
    loadings = right[:rank].T * np.sqrt(np.maximum(values[:rank] ** 2 / len(x) - 1.0, 0.05))
    common = np.sum(loadings**2, axis=1)
    loadings *= np.minimum(1.0, np.sqrt(0.9 / np.maximum(common, 1e-12)))[:, None]
    own = np.maximum(1.0 - np.sum(loadings**2, axis=1), 0.1)
    return _Model(loadings, own, np.ones(rank))


def _posterior(x: Floats, d: Floats, model: _Model) -> tuple[Floats, Floats, Floats, Floats]:
    """Mean and variance of the deviations, mean and covariance of the factors, given the model."""
    loadings, own = model.loadings, model.own
    rank = loadings.shape[1]
    whole = own + d
    products = (loadings[:, :, None] * loadings[:, None, :]).reshape(-1, rank * rank)
    precision = np.eye(rank) + ((1.0 / whole) @ products).reshape(-1, rank, rank)
    covariance = np.asarray(np.linalg.inv(precision), dtype=np.float64)
    factors = np.asarray((covariance @ ((x / whole) @ loadings)[:, :, None])[:, :, 0])
    keep = own / whole
    common = factors @ loadings.T
    mean = np.asarray(common + keep * (x - common), dtype=np.float64)
    spread = covariance.reshape(-1, rank * rank) @ products.T
    return mean, keep * d + (1.0 - keep) ** 2 * spread, factors, covariance


def _step(x: Floats, d: Floats, model: _Model) -> _Model:
    """One round of expectation–maximisation; α from the loadings and their uncertainty.

    The loadings of level m have covariance ψ_m (W + ψ_m diag α)⁻¹ with W the summed second moments of the factors.
    One basis B makes W and diag α diagonal at once, BᵀWB = diag λ and Bᵀ diag(α) B = I, so that no level needs an
    inverse of its own: (W + ψ diag α)⁻¹ = B diag(1/(λ + ψ)) Bᵀ.
    """
    rank = model.loadings.shape[1]
    mean, variance, factors, covariance = _posterior(x, d, model)
    keep = model.own / (model.own + d)
    second = covariance + factors[:, :, None] * factors[:, None, :]
    shared = ((1.0 - keep).T @ second.reshape(-1, rank * rank)).reshape(-1, rank, rank)
    cross = (model.loadings[:, None, :] @ shared)[:, 0, :] + (keep * x).T @ factors
    root = np.sqrt(model.relevance)
    lam, turned = np.linalg.eigh(second.sum(axis=0) / (root[:, None] * root))
    basis = turned / root[:, None]
    own = model.own[:, None]
    shrunk = (cross @ basis) / (lam + own)
    fitted = shrunk @ basis.T
    left = np.sum(mean**2 + variance, axis=0) - 2.0 * np.sum(fitted * cross, axis=1)
    doubt = own / (lam + own)
    left += np.sum((shrunk**2 + doubt) * lam, axis=1)
    relevance = len(fitted) / (np.sum(fitted**2, axis=0) + basis**2 @ doubt.sum(axis=0))
    return _Model(fitted, np.maximum(left / len(x), 1e-3), relevance)
