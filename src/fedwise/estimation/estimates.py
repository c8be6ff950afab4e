"""Estimates: the denoised pool, ready to be summed over any federation."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ..schema.layout import Layout
from ..schema.schema import Schema

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Posterior:
    """What the releases leave open about each client: independent Gaussian errors, part by part.

    All but `totals` are variances of proportions. They are posterior variances τ²v/(τ²+v), so they
    count the shrinkage bias as error and are never above the spread of the pool itself.

    Parameters
    ----------
    totals
        Shape (clients,): variance of the number of records.
    marginals
        Shape (clients, sum of sizes): variance of each level, given that levels sum to one.
    strength
        Shape (clients, tables): variance of the coordinate along `direction`.
    direction
        Shape (cells,): per table the unit vector along which the pool's association grows.
    spread
        Shape (tables,): between-client variance of a cell off that direction, in units of its pool
        proportion.
    oddity
        Shape (clients,): factor on that variance for each client.
    pool
        Shape (cells,): the pool's own proportions.
    pool_strength, pool_cells
        Shapes (tables,) and (cells,): variance of the pool's proportions along and off the direction;
        an error that all clients share.
    gap
        Shape (tables,): information, in nats, that the mixture of all clients' estimates lacks beside
        the pool's own estimate; not closed, being within the error of that.
    """

    totals: Floats
    marginals: Floats
    strength: Floats
    direction: Floats
    spread: Floats
    oddity: Floats
    pool: Floats
    pool_strength: Floats
    pool_cells: Floats
    gap: Floats


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
    posterior
        What is left open about each client after shrinkage; ``None`` for the plain estimator, whose
        error is the released noise.
    """

    clients: tuple[str, ...]
    schema: Schema
    layout: Layout
    cells: Floats
    totals: Floats
    marginals: Floats | None = None
    estimator: str = "plain"
    sigmas: Floats = field(default_factory=lambda: np.zeros(0))
    posterior: Posterior | None = None
    #: Redraws made so far, by seed and number; see `redraw.redrawn`.
    redraws: dict[tuple[int, int], Estimates] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def marginal_offsets(self) -> npt.NDArray[np.int64]:
        """First entry of each variable in `marginals`, and the width last."""
        return np.concatenate([[0], np.cumsum(self.layout.sizes)]).astype(np.int64)
