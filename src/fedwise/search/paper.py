"""Paper: the bounds that the paper states for a selection, on request."""

from __future__ import annotations

from ..bounds import with_bounds
from ..certificate import Certificate
from ..errors import FedwiseError
from ..estimation.estimates import Estimates
from ..pool.pool import Pool
from .entry import estimates_of
from .selection import Selection


def paper_bounds(pool: Pool | Estimates, selection: Selection) -> Certificate:
    """The certificate of a selection with the paper's two bounds in it: print its `paper`.

    The bounds rest on assumptions that hardly ever hold at ε = 1; those that fail are named in front, and a bound
    that excludes nothing says so instead of giving a number.

    Parameters
    ----------
    pool
        The releases the selection was made from, or their estimates.

    Raises
    ------
    FedwiseError
        For an objective other than the paper's loss, or clients that are not in the pool.
    """
    if selection.objective != "pfl":
        raise FedwiseError(
            f"objective must be the paper's loss for its bounds, got '{selection.objective}'; select without it"
        )
    estimates = estimates_of(pool, selection.estimator or "shrinkage")
    unknown = sorted(set(selection.clients) - set(estimates.clients))
    if unknown:
        raise FedwiseError(
            f"pool must hold the selected clients, got none named '{unknown[0]}'; give the pool that was searched"
        )
    return with_bounds(
        selection.certificate,
        estimates,
        sorted(estimates.clients.index(client) for client in selection.clients),
        selection.weights,
        std_error=selection.std_error,
        simulated=isinstance(pool, Pool) and pool.simulated,
        seed=selection.seed,
    )
