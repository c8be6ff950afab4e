"""Estimates: the denoised pool, ready to be summed over any federation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import numpy as np
import numpy.typing as npt

from ..cache import Cache
from ..schema.layout import Layout
from ..schema.schema import Schema
from .consistency import consistent
from .joint import JointTables

Floats = npt.NDArray[np.float64]

#: Redraws of the noise that estimates keep: a few megabytes each.
_REDRAWS = 10


@dataclass(frozen=True)
class Posterior:
    """What remains uncertain about each client: independent Gaussian errors, part by part.

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
    spread_factor
        Shape (clients,): factor on that variance for each client.
    pool
        Shape (cells,): the pool's own proportions.
    pool_strength, pool_cells
        Shapes (tables,) and (cells,): variance of the pool's proportions along and off the direction;
        an error that all clients share.
    gap
        Shape (tables,): information, in nats, by which the mixture of all clients' estimates stays below
        the pool's own estimate, because the difference is within the error of that estimate.
    """

    totals: Floats
    marginals: Floats
    strength: Floats
    direction: Floats
    spread: Floats
    spread_factor: Floats
    pool: Floats
    pool_strength: Floats
    pool_cells: Floats
    gap: Floats

    @classmethod
    def nothing(cls, layout: Layout, clients: int, pools: int = 1) -> Posterior:
        """Nothing is uncertain, yet: arrays of zeros to be filled, with the pools as their first axis."""
        return cls(
            totals=np.zeros((pools, clients)),
            marginals=np.zeros((pools, clients, layout.levels)),
            strength=np.zeros((pools, clients, layout.tables)),
            direction=np.zeros((pools, layout.cells)),
            spread=np.zeros((pools, layout.tables)),
            spread_factor=np.ones((pools, clients)),
            pool=np.zeros((pools, layout.cells)),
            pool_strength=np.zeros((pools, layout.tables)),
            pool_cells=np.zeros((pools, layout.cells)),
            gap=np.zeros((pools, layout.tables)),
        )

    def of_pool(self, i: int) -> Posterior:
        """One pool of `nothing` that was filled."""
        return Posterior(**{field.name: getattr(self, field.name)[i] for field in fields(self)})


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
        Shape (clients, sum of sizes): one marginal for each variable, in schema order. `cells` agree with
        them, except for the plain estimator, whose cells stay as they were released.
    totals
        Shape (clients,): estimated number of records.
    estimator
        Name of the estimator that made them: ``plain`` or ``shrinkage``.
    sigmas
        Shape (clients, tables): noise scale of each client's tables as released (zeros for a release that is not
        private). A vector of scales that all clients share may be given; nothing given is no noise.
    posterior
        What remains uncertain about each client after shrinkage; ``None`` for the plain estimator, whose
        error is the released noise.
    released
        Shape (clients, cells): the noisy counts they were made from, where known.
    joint
        The tables before they were summed to pairs, where the plan asked for joint ones.
    """

    clients: tuple[str, ...]
    schema: Schema
    layout: Layout
    cells: Floats
    totals: Floats
    marginals: Floats
    estimator: str
    sigmas: Floats = field(default_factory=lambda: np.zeros(0))
    posterior: Posterior | None = None
    released: Floats | None = field(default=None, repr=False, compare=False)
    joint: JointTables | None = field(default=None, repr=False, compare=False)
    #: Redraws of the noise, by seed and number; see `redraw.redrawn`.
    cache: Cache[tuple[int, int], Estimates] = field(
        default_factory=lambda: Cache(_REDRAWS), init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        shape = (len(self.clients), self.layout.tables)
        scales = np.asarray(self.sigmas, dtype=np.float64)
        object.__setattr__(self, "sigmas", np.broadcast_to(scales if scales.size else 0.0, shape))

    @classmethod
    def plain(
        cls,
        clients: Sequence[str],
        schema: Schema,
        layout: Layout,
        cells: Floats,
        sigmas: Floats | None = None,
    ) -> Estimates:
        """The paper's estimates: released counts as they are, beside marginals and totals that fit them best."""
        noise = np.zeros(layout.tables) if sigmas is None else np.asarray(sigmas, dtype=np.float64)
        # Every table estimates the number of records; their precision-weighted mean is the best of them.
        _, marginals, totals, _ = consistent(cells, layout, noise)
        return cls(tuple(clients), schema, layout, cells, totals, marginals, "plain", noise)
