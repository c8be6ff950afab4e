"""Redraws: the forecast's rows of pools released again, kept between predictions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


class RedrawCache:
    """Rows of re-released pools, made when first asked for. More draws continue from fewer; one seed is kept.

    Parameters
    ----------
    make
        Rows of redraws from their generators: each of shape (clients, width).
    """

    def __init__(self, make: Callable[[Sequence[np.random.Generator]], list[Floats]]) -> None:
        self._make = make
        self._seed: int | None = None
        self._rows: list[npt.NDArray[np.float32]] = []
        # The chains of a search ask from several threads at once.
        self._lock = threading.Lock()

    def sums(self, members: npt.NDArray[np.int64], *, draws: int, seed: int) -> Floats:
        """Summed rows of `members` in each of the first `draws` redraws. Shape (draws, width)."""
        with self._lock:
            if seed != self._seed:
                self._seed, self._rows = seed, []
            missing = range(len(self._rows), draws)
            if missing:
                generators = [
                    np.random.default_rng([seed & 0xFFFFFFFFFFFFFFFF, 17, number]) for number in missing
                ]
                self._rows += [rows.astype(np.float32) for rows in self._make(generators)]
            found = self._rows[:draws]
        return np.stack([rows[members].sum(axis=0, dtype=np.float64) for rows in found])
