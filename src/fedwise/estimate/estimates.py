"""Estimates: the denoised pool, ready to be summed over any federation."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ..schema import Schema
from ..tables import Layout

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Estimates:
    """Estimated counts of every client.

    Parameters
    ----------
    clients
        Names, in row order.
    schema, layout
        The public description and where each cell lives.
    cells
        Shape (clients, cells): estimated pair-table counts. May be slightly negative.
    marginals
        Shape (clients, sum of sizes): one marginal per variable, in schema order, consistent with
        `cells`; or ``None`` for the paper's plug-in estimate, where each summed table is clipped at
        zero and brings marginals of its own.
    totals
        Shape (clients,): estimated number of records.
    estimator
        Name of the estimator that made them: ``plain`` or ``shrinkage``.
    sigmas
        Noise scale of each table as released (zeros for a release that is not private).
    """

    clients: tuple[str, ...]
    schema: Schema
    layout: Layout
    cells: Floats
    totals: Floats
    marginals: Floats | None = None
    estimator: str = "plain"
    sigmas: Floats = field(default_factory=lambda: np.zeros(0))

    @property
    def marginal_offsets(self) -> npt.NDArray[np.int64]:
        """First entry of each variable in `marginals`, and the width last."""
        return np.concatenate([[0], np.cumsum(self.layout.sizes)]).astype(np.int64)
