"""From noisy tables to estimates: consistency, shrinkage to the pool, information with error bars.

The mathematics of mutual information is that of `fedwise.objective.information`.
"""

from __future__ import annotations

from typing import Literal, Protocol, get_args

import numpy as np
import numpy.typing as npt

from ..cache import Cache
from ..errors import FedwiseError, PoolError, nearest
from ..planning import Plan
from .consistency import Consistency, consistent, screen
from .estimates import Estimates, Posterior
from .joint import JointTables
from .shrinkage import shrink

__all__ = [
    "Consistency",
    "Estimates",
    "Estimator",
    "Posterior",
    "Releases",
    "consistent",
    "estimate",
    "screen",
]

Estimator = Literal["shrinkage", "plain"]


class Releases(Protocol):
    """What is estimated from: releases of one plan, or of related plans. `Pool` is one."""

    clients: tuple[str, ...]
    #: How the releases are read, and the plan as clients got it.
    plan: Plan
    asked: Plan
    matrix: npt.NDArray[np.int64] | npt.NDArray[np.float64]
    #: Shape (clients, tables): noise scales.
    sigmas: npt.NDArray[np.float64]
    #: The tables before they were summed to pairs; None where the plan asks for pairs alone.
    joint: JointTables | None
    #: Estimates made so far, by estimator.
    cache: Cache[str, Estimates]


def estimate(pool: Releases, estimator: Estimator | str = "shrinkage") -> Estimates:
    """Estimate every client's tables from their releases: post-processing, no further privacy cost.

    They stay in the pool's cache: asking again costs nothing. Their arrays are read-only.

    Parameters
    ----------
    pool
        Releases of one plan, or of plans that ask for the same tables.
    estimator
        ``shrinkage``: consistent, non-negative counts, denoised by what the pool has in common.
        ``plain``: the released counts as they are; a federation's summed tables are clipped at zero
        and bring their own marginals, as in the paper.

    Raises
    ------
    FedwiseError
        Another estimator name.
    PoolError
        The pool has no client or no table.
    """
    if estimator not in get_args(Estimator):
        raise FedwiseError(
            f"estimator must be shrinkage or plain, got '{estimator}'{nearest(str(estimator), get_args(Estimator))}"
        )
    return pool.cache.get(estimator, lambda: _estimate(pool, estimator))


def _estimate(pool: Releases, estimator: Estimator | str) -> Estimates:
    plan = pool.plan
    layout, sigmas = plan.layout, pool.sigmas
    if len(pool.clients) == 0:
        raise PoolError("pool must hold at least one release; add release files")
    if estimator == "plain":
        made = Estimates.plain(pool.clients, plan.schema, layout, pool.matrix.astype(np.float64), sigmas)
    else:
        # A pair of groups and classes is in every joint table: estimates use them all.
        matrix, sigmas = (pool.matrix, sigmas) if pool.joint is None else pool.joint.pairs
        found = shrink(matrix, layout, sigmas)
        made = Estimates(
            pool.clients,
            plan.schema,
            layout,
            found.cells,
            found.totals,
            found.marginals,
            "shrinkage",
            sigmas,
            found.posterior,
            np.asarray(matrix, dtype=np.float64),
            pool.joint,
        )
    for array in (made.cells, made.totals, made.marginals):
        array.flags.writeable = False
    return made
