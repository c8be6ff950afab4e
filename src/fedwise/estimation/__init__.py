"""From noisy tables to estimates: consistency, shrinkage to the pool, information with error bars.

`information` and `redraw` are modules of their own: they read `fedwise.objective`, which reads
`Estimates` from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from ..errors import FedwiseError, PoolError, nearest
from .consistency import Consistency, consistent, screen
from .estimates import Estimates, Posterior
from .shrinkage import shrink

if TYPE_CHECKING:
    from ..pool.pool import Pool

__all__ = ["Consistency", "Estimates", "Estimator", "Posterior", "consistent", "estimate", "screen"]

Estimator = Literal["shrinkage", "plain"]


def estimate(pool: Pool, estimator: Estimator | str = "shrinkage") -> Estimates:
    """Estimate every client's tables from their releases: post-processing, no further privacy cost.

    The pool remembers them: asking again costs nothing. Their arrays are read-only.

    Parameters
    ----------
    pool
        Releases of one plan.
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
    known = pool.estimated.get(estimator)
    if known is None:
        known = pool.estimated[estimator] = _estimate(pool, estimator)
        for array in (known.cells, known.totals, known.marginals):
            if array is not None:
                array.flags.writeable = False
    return known


def _estimate(pool: Pool, estimator: Estimator | str) -> Estimates:
    plan = pool.plan
    layout, sigmas = plan.layout, np.asarray(plan.sigmas, dtype=np.float64)
    if len(pool.clients) == 0:
        raise PoolError("pool must hold at least one release; add release files")
    if estimator == "plain":
        cells = pool.matrix.astype(np.float64)
        # Every table estimates the number of records; their precision-weighted mean is the best of them.
        _, _, totals, _ = consistent(cells, layout, sigmas)
        return Estimates(pool.clients, plan.schema, layout, cells, totals, None, "plain", sigmas)
    found = shrink(pool.matrix, layout, sigmas)
    return Estimates(
        pool.clients,
        plan.schema,
        layout,
        found.cells,
        found.totals,
        found.marginals,
        "shrinkage",
        sigmas,
        found.posterior,
    )
