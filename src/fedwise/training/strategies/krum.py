"""Krum and multi-Krum (Blanchard, El Mhamdi, Guerraoui, Stainer 2017): the updates nearest to most others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from ..local import Update
from ..model import Vector
from .fedavg import FedAvg
from .strategy import ServerState, check_share, stacked


@dataclass(frozen=True)
class Krum(FedAvg):
    """x ← the y_i with the least sum of squared distances to its n − f − 2 nearest, f = ⌊share·n⌋.

    Parameters
    ----------
    share
        Share of the participants that may be bad, below ½.
    """

    name: ClassVar[str] = "krum"
    share: float = 0.3

    def __post_init__(self) -> None:
        check_share(self.share)

    def aggregate(
        self, parameters: Vector, updates: Sequence[Update], state: ServerState
    ) -> tuple[Vector, ServerState]:
        """The best update alone."""
        found = stacked(updates)
        return found[np.argmin(krum_scores(found, self.share))].astype(np.float32), state


@dataclass(frozen=True)
class MultiKrum(Krum):
    """x ← mean of the n − f updates with the best scores of Krum. Rows do not count."""

    name: ClassVar[str] = "multi_krum"

    def aggregate(
        self, parameters: Vector, updates: Sequence[Update], state: ServerState
    ) -> tuple[Vector, ServerState]:
        """The mean of the best."""
        found = stacked(updates)
        kept = len(found) - int(self.share * len(found))
        best = np.argsort(krum_scores(found, self.share), kind="stable")[:kept]
        return found[np.sort(best)].mean(axis=0).astype(np.float32), state


def krum_scores(vectors: npt.NDArray[np.float64], share: float) -> npt.NDArray[np.float64]:
    """Sum of squared distances of each vector to its n − f − 2 nearest others; at least one of them counts."""
    n = len(vectors)
    # Distances do not change with the origin; near it the products lose no digits.
    near = vectors - vectors.mean(axis=0)
    squared = np.sum(near**2, axis=1)
    distance = np.maximum(squared[:, None] + squared - 2.0 * near @ near.T, 0.0)
    np.fill_diagonal(distance, np.inf)
    others = min(max(n - int(share * n) - 2, 1), n - 1)
    return np.asarray(np.sort(distance, axis=1)[:, :others].sum(axis=1), dtype=np.float64)
