"""Allocation: which tables a plan asks for, and how one privacy budget is shared among them.

M Gaussian tables with noise σ_j are together one Gaussian mechanism with 1/σ² = Σ_j 1/σ_j², so the
budget fixes the sum of the precisions and nothing else. Table j gets the share q_j of it:

    σ_j = s(ε, δ) / √q_j,    Σ_j q_j = 1,    q_j > 0.

Shares depend on public things only: the schema, the layout, the weights of the loss.
"""

from __future__ import annotations

from itertools import combinations
from typing import Literal, get_args

import msgspec
import numpy as np
import numpy.typing as npt

from .errors import PlanError, nearest
from .objective.pfl import Weights, pair_weights
from .schema.joint import joined, with_joint, without_joint
from .schema.layout import Layout
from .schema.schema import Column, Role, Schema

Floats = npt.NDArray[np.float64]
Allocation = Literal["weighted", "uniform"]

#: More cells than this do not fit a release that people can read and servers can sum.
MAX_CELLS = 2_000_000
#: Name of the column of one level that a plan adds to a schema of targets alone.
LABEL_ALONE = "all records"
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


def asked_tables(
    schema: Schema, weights: Weights, allocation: Allocation | str, *, joint: bool
) -> tuple[Schema, Layout, Floats]:
    """The schema as it is asked, its tables, and the share of the precision that each gets.

    Raises
    ------
    PlanError
        There is no table with a weight, or there are too many cells.
    """
    schema = without_joint(schema)
    if not (schema.features or schema.sensitive):
        # A label alone: its table with a column of one level is the count of each class.
        counted = Column(LABEL_ALONE, Role.FEATURE, cross=(), model="drop")
        schema = msgspec.structs.replace(schema, columns=(*schema.columns, counted))
    everything = Layout(schema.names, schema.sizes, tuple(combinations(range(len(schema.columns)), 2)))
    used = np.flatnonzero(pair_weights(schema, everything, weights))
    pairs = tuple(everything.pairs[j] for j in used)
    if not pairs:
        raise PlanError("plan must ask for at least one table; the schema has no pair with a weight above 0")
    layout = Layout(schema.names, schema.sizes, pairs)
    cut = shares(schema, layout, weights, allocation)
    if joint:
        schema = with_joint(schema)
        layout, cut = joined(schema, layout, cut)
    if layout.cells > MAX_CELLS:
        raise PlanError(f"plan must ask for at most {MAX_CELLS} cells, got {layout.cells}; use fewer levels")
    return schema, layout, cut
