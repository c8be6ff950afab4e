"""Surrogate: metrics of federations that were not rehearsed, from those that were.

A metric is taken to be a weighted mean of what its members bring,

    metric(W) ≈ a + Σ_{i∈W} b_i · ½ (1/k + n_i / n_W),

half by heads, half by records as averaging weighs them. Ridge regression finds b; its strength is chosen by the error
of leaving one federation out. It points the search to promising federations and decides nothing: those are rehearsed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..estimation.estimates import Estimates
from ..objective.metric import parse
from .goal import PENALTY, Goal

Floats = npt.NDArray[np.float64]

#: Strengths of the ridge that are tried, in units of the mean square of a feature.
_RIDGES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


class Surrogate:
    """An objective for the searches, fitted to rehearsed federations.

    Parameters
    ----------
    records
        Estimated records of each client.
    members
        Positions of the rehearsed federations.
    values
        Their metrics: shape (federations, metrics of the goal), in the order of ``goal.metrics``.
    offsets
        Which stage each was rehearsed in: what a stage does to all of them is taken out.
    bounds
        Limits at the level of these rehearsals, by metric.
    """

    name = "surrogate"

    def __init__(
        self, records: Floats, members: Sequence[Sequence[int]], values: Floats, offsets: Sequence[int],
        goal: Goal, bounds: dict[str, float],
    ) -> None:  # fmt: skip
        self.goal, self.bounds = goal, bounds
        self._records = np.maximum(np.asarray(records, dtype=np.float64), 1.0)
        sums = np.stack([self._rows()[list(one)].sum(axis=0) for one in members])
        features = self._features(sums)
        stages = np.unique(np.asarray(offsets))
        effect = np.array([[np.mean(values[np.asarray(offsets) == s], axis=0)] for s in stages])[:, 0]
        at = np.searchsorted(stages, np.asarray(offsets))
        self._level = values.mean(axis=0)
        centred = values - effect[at]
        self._middle = features.mean(axis=0)
        fits = [_ridge(features - self._middle, centred[:, m]) for m in range(values.shape[1])]
        self.effects: Floats = np.stack([fit[0] for fit in fits], axis=1)
        self._roots = [fit[1] for fit in fits]
        self._drawn = self.effects

    def drawn(self, rng: np.random.Generator) -> Surrogate:
        """The same with effects drawn from what the rehearsals leave open, so that searches differ."""
        other = object.__new__(Surrogate)
        other.__dict__.update(self.__dict__)
        other._drawn = np.stack(
            [
                self.effects[:, m] + root @ rng.standard_normal(root.shape[1])
                for m, root in enumerate(self._roots)
            ],
            axis=1,
        )
        return other

    def rows(self, estimates: Estimates) -> Floats:
        """Who is in, their records by client, and their records."""
        return self._rows()

    def evaluate(self, sums: Floats) -> Floats:
        """Loss of each summed row, its limits as penalties."""
        found = dict(zip(self.goal.metrics, self.predicted(sums).T, strict=True))
        loss = -sum(weight * found[name] for name, weight in self.goal.weights.items())
        for name, bound in self.bounds.items():
            sign = -1.0 if parse(name).larger_is_better else 1.0
            loss = loss + PENALTY * np.maximum(sign * (found[name] - bound), 0.0)
        return np.asarray(loss)

    def predicted(self, sums: Floats) -> Floats:
        """Metrics of each summed row: shape (batch, metrics)."""
        return np.asarray(self._level + (self._features(sums) - self._middle) @ self._drawn)

    def _rows(self) -> Floats:
        count = len(self._records)
        return np.concatenate(
            [np.eye(count), np.diag(self._records), self._records[:, None]], axis=1, dtype=np.float64
        )

    def _features(self, sums: Floats) -> Floats:
        count = len(self._records)
        heads = np.maximum(sums[:, :count].sum(axis=1, keepdims=True), 1.0)
        return np.asarray(
            (sums[:, :count] / heads + sums[:, count : 2 * count] / np.maximum(sums[:, -1:], 1.0)) / 2
        )


def _ridge(features: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Coefficients, and a root of their posterior covariance, with the ridge that predicts left-out values best."""
    rows, columns = features.shape
    left, sizes, right = np.linalg.svd(features, full_matrices=False)
    unit = float((sizes**2).sum()) / max(columns, 1)
    best = None
    for strength in _RIDGES:
        penalty = strength * max(unit, 1e-12)
        shrink = sizes**2 / (sizes**2 + penalty)
        hat = (left**2) @ shrink + 1.0 / rows
        rest = (values - values.mean() - left @ (shrink * (left.T @ (values - values.mean())))) / np.maximum(
            1.0 - hat, 1e-3
        )
        error = float((rest**2).mean())
        if best is None or error < best[0]:
            best = (error, penalty)
    assert best is not None
    error, penalty = best
    coefficients = right.T @ (sizes / (sizes**2 + penalty) * (left.T @ (values - values.mean())))
    # Posterior covariance of ridge regression: σ² (X'X + λI)⁻¹, along the directions that were seen and the others.
    scale = np.sqrt(error) / np.sqrt(sizes**2 + penalty)
    rest = np.eye(columns) - right.T @ right
    root = (
        right.T * scale + 0.0
        if right.shape[0] == columns
        else np.concatenate([right.T * scale, rest * np.sqrt(error / penalty)], axis=1)
    )
    return coefficients, root
