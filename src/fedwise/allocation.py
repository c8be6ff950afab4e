"""Allocation: how one privacy budget is shared among the tables.

M Gaussian tables with noise σ_j are together one Gaussian mechanism with 1/σ² = Σ_j 1/σ_j², so the
budget fixes the sum of the precisions and nothing else. Table j gets the share q_j of it:

    σ_j = s(ε, δ) / √q_j,    Σ_j q_j = 1,    q_j > 0.

Shares depend on public things only: the schema, the layout, the weights of the loss.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from .errors import PlanError, nearest
from .objective.pfl import Weights, pair_weights
from .schema.layout import Layout
from .schema.schema import Schema

Floats = npt.NDArray[np.float64]
Allocation = Literal["weighted", "uniform"]

#: Part of the budget that is spread evenly, so that every table stays usable under other weights.
EVEN = 0.1


def shares(
    schema: Schema, layout: Layout, weights: Weights, allocation: Allocation | str = "weighted"
) -> Floats:
    """Share of the total precision that each table gets.

    ``uniform`` is the paper's: q_j = 1/M. ``weighted`` spreads a part `EVEN` evenly and the rest by
    what a table's noise does to the loss, whose variance is Σ_j w_j² G_j σ_j²: under Σ q_j = 1 it is least
    for q_j ∝ |w_j|·√G_j. G_j depends on the data and is taken as equal:

        q_j = EVEN / M + (1 − EVEN) · |w_j| / Σ_i |w_i|.

    (Taking G_j as the number of cells was no better: small tables also measure the marginals best.)

    Returns
    -------
    shares
        Shape (tables,), positive, summing to 1.

    Raises
    ------
    PlanError
        `allocation` has another name, or there is no table.
    """
    if allocation not in get_args(Allocation):
        raise PlanError(
            f"allocation must be weighted or uniform, got '{allocation}'"
            + nearest(str(allocation), get_args(Allocation))
        )
    if layout.tables == 0:
        raise PlanError("allocation needs at least one table; ask for at least one pair of variables")
    even = np.full(layout.tables, 1.0 / layout.tables)
    if allocation == "uniform":
        return even
    need = np.abs(pair_weights(schema, layout, weights))
    if need.sum() <= 0.0:
        return even
    mixed = EVEN * even + (1.0 - EVEN) * need / need.sum()
    return np.asarray(mixed / mixed.sum(), dtype=np.float64)
