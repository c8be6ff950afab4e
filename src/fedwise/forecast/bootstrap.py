"""Bootstrap: the pool as it might have been released, to see how far noise moves a forecast."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ..estimate.consistency import consistent
from ..estimate.estimates import Estimates
from ..estimate.shrinkage import shrink
from .moments import table_sigmas

Floats = npt.NDArray[np.float64]


def redraws(estimates: Estimates, draws: int, *, seed: int) -> Iterator[tuple[Floats, Floats, Floats]]:
    """Consistent cells, marginals and totals of re-released pools.

    A parametric bootstrap: the estimates stand for the truth, noise of the plan's scale is added to
    their cells, and the same estimator runs again. Without noise every redraw is the pool itself.
    """
    sigmas = table_sigmas(estimates)
    per_cell = estimates.layout.per_cell(sigmas)
    for number in range(draws):
        rng = np.random.default_rng([seed & 0xFFFFFFFFFFFFFFFF, 17, number])
        cells = estimates.cells + rng.standard_normal(estimates.cells.shape) * per_cell
        if estimates.estimator == "shrinkage":
            found = shrink(cells, estimates.layout, sigmas)
            yield found.cells, found.marginals, found.totals
        else:
            yield consistent(cells, estimates.layout, sigmas)[:3]
