"""Mixture: how much each client counts in what all clients have in common."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Mixture:
    """How much each client counts: its share of the pool (summing to 1), and its weight where τ² is estimated.

    Both have shape (…, clients): several pools of the same clients stand side by side.
    """

    share: Floats
    weight: Floats

    def between(self, deviation: Floats, v: Floats) -> Floats:
        """Between-client variance of each column by the method of moments, never negative. Shape (…, columns).

        The pool mean holds every client, so E d_i² = h_i·τ² + (1 − 2s_i)·v_i + Σ_k s_k² v_k with s the
        shares and h_i = 1 − 2s_i + Σ_k s_k².

        Parameters
        ----------
        deviation, v
            Shapes (…, clients, columns), and the same or (…, clients, 1) for the noise variance.
        """
        share = self.share[..., None]
        mean = np.sum(share**2 * v, axis=-2, keepdims=True)
        excess = weighted(self.weight, deviation**2 - (1.0 - 2.0 * share) * v - mean)
        own = 1.0 - 2.0 * self.share + np.sum(self.share**2, axis=-1, keepdims=True)
        scale = np.sum(self.weight * own, axis=-1, keepdims=True)
        lone = scale <= 1e-9 * self.weight.sum(axis=-1, keepdims=True)  # one client is its own pool
        return np.where(lone, 0.0, np.maximum(excess / np.where(lone, 1.0, scale), 0.0))

    def spread(self, residual: Floats, pool: Floats, v: Floats) -> Floats:
        """Between-client variance of the cells off the direction, as a multiple of their proportion. Shape (…)."""
        top = weighted(self.weight, (residual**2 - v) * pool[..., None, :]).sum(axis=-1)
        bottom = self.weight.sum(axis=-1) * np.sum(pool**2, axis=-1)
        found = np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 0)
        return np.asarray(np.maximum(found, 0.0))


def weighted(weights: Floats, rows: Floats) -> Floats:
    """Sum over clients: weights (…, clients) of rows (…, clients, columns). Shape (…, columns)."""
    return np.asarray((weights[..., None, :] @ rows)[..., 0, :])
