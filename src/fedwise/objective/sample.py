"""Sample: artificial records of a population, drawn from its pair tables alone.

A tree of the strongest pairs (Chow & Liu 1968) is drawn from, then the records are raked: weighted until
every pair table of the sample equals the population's (iterative proportional fitting). The result has
the population's pairs and, beyond them, as little structure as the tree and the raking bring in. Scores of
any linear model then have their real, uneven distribution in each class and group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..machine_code import compiled
from ..schema.layout import Layout
from .tree import strongest_tree

Floats = npt.NDArray[np.float64]

#: A raking step may not raise a record's weight by more than this factor.
_LARGEST_STEP = 10.0
_PASSES = 30


@dataclass(frozen=True, eq=False)
class Sample:
    """Weighted records of a population.

    Parameters
    ----------
    codes
        Shape (schema variables, records). Variables that were not drawn hold 0.
    weights
        Shape (records,), sum 1.
    """

    codes: npt.NDArray[np.int16]
    weights: Floats


def draw(layout: Layout, shares: Floats, variables: Sequence[int], *, records: int, seed: int) -> Sample:
    """Draw records over `variables` and rake them to all pair tables among these.

    Parameters
    ----------
    shares
        Shape (cells,): each table sums to 1.
    variables
        Positions to draw; the first is the root of the tree.
    """
    rng = np.random.default_rng(seed)
    wanted = set(variables)
    kept = [j for j, (x, y) in enumerate(layout.pairs) if x in wanted and y in wanted]
    codes = np.zeros((len(layout.sizes), records), np.int16)
    for child, parent, table in strongest_tree(layout, shares, variables=variables, root=variables[0]):
        if parent is None:
            codes[child] = _spread(np.cumsum(table.sum(axis=0)), records, rng)
            continue
        with np.errstate(divide="ignore", invalid="ignore"):
            given = np.nan_to_num(np.cumsum(table / table.sum(axis=1, keepdims=True), axis=1))
        for level in range(table.shape[0]):
            at = np.flatnonzero(codes[parent] == level)
            if len(at):
                codes[child, at] = _spread(given[level], len(at), rng)
    weights = np.full(records, 1.0 / records)
    pairs = np.array([layout.pairs[j] for j in kept], np.int64).reshape(-1, 2)
    offsets = np.array([layout.offsets[j] for j in kept], np.int64)
    widths = np.array([layout.shapes[j] for j in kept], np.int64).reshape(-1, 2)
    rake(codes, pairs, offsets, widths, shares, weights, _PASSES)
    return Sample(codes, weights)


def _spread(cumulative: Floats, records: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Levels in the given shares, evenly spread (stratified) and shuffled."""
    ticks = (rng.permutation(records) + rng.random(records)) / records
    return np.minimum(np.searchsorted(cumulative, ticks), len(cumulative) - 1)


@compiled()
def rake(
    codes: npt.NDArray[np.int16],
    pairs: npt.NDArray[np.int64],
    offsets: npt.NDArray[np.int64],
    shapes: npt.NDArray[np.int64],
    shares: Floats,
    weights: Floats,
    passes: int,
) -> None:
    """Scale the records' weights, table by table, until the sample's tables are `shares`. In place."""
    records = weights.size
    for _ in range(passes):
        for j in range(pairs.shape[0]):
            x, y, width = codes[pairs[j, 0]], codes[pairs[j, 1]], shapes[j, 1]
            size = shapes[j, 0] * width
            factor = np.zeros(size)
            for r in range(records):
                factor[x[r] * width + y[r]] += weights[r]
            for c in range(size):
                if factor[c] > 0.0:
                    factor[c] = min(shares[offsets[j] + c] / factor[c], _LARGEST_STEP)
            for r in range(records):
                weights[r] *= factor[x[r] * width + y[r]]
        total = weights.sum()
        for r in range(records):
            weights[r] /= total
