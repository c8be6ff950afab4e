"""Agreement: clients' proportions that sum to the pool's, each moved only as far as it is uncertain."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

#: Rounds of moving columns, then rows; floors that bind need a few.
_ROUNDS = 12
#: A sum within this of the wanted one is right.
_NEAR = 1e-10


def agree(levels: Floats, doubt: Floats, floor: Floats, *, share: Floats, pool: Floats) -> Floats:
    """Move proportions so that every client's sum to one and all clients' mixture is the pool's.

    Minimises Σ (moved − level)²/doubt by alternating its two projections, floors kept:

        Σ_i s_i p_il = pool_l   moves p_il by  u_il s_i / Σ_i s_i² u_il  of what is missing
        Σ_l p_il = 1            moves p_il by  u_il / Σ_l u_il           of what is missing

    A client that is measured well (small u) stays where it is, however large its share of the pool.

    Parameters
    ----------
    levels, doubt, floor
        Shape (clients, levels): proportions, their variances u, and the least they may be.
    share, pool
        Shapes (clients,) and (levels,): the mixture, and what it should give.
    """
    moved = np.maximum(levels, floor)
    by_column = doubt * share[:, None]
    column = by_column.T @ share
    by_column = np.divide(by_column, column, out=np.zeros_like(doubt), where=column > 0)
    row = doubt.sum(axis=1, keepdims=True)
    by_row = np.divide(doubt, row, out=np.zeros_like(doubt), where=row > 0)
    for _ in range(_ROUNDS):
        missing = pool - share @ moved
        moved = np.maximum(moved + by_column * missing, floor)
        short = 1.0 - moved.sum(axis=1, keepdims=True)
        moved = np.maximum(moved + by_row * short, floor)
        if max(np.abs(missing).max(), np.abs(short).max()) < _NEAR:
            break
    return np.asarray(moved / moved.sum(axis=1, keepdims=True))
