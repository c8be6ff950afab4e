"""Thinning: shares denoised before people are drawn from them, and drawn people taken equally weighted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..errors import FedwiseError
from ..objective.sample import Sample
from ..objective.tree import strongest_tree
from ..schema.layout import Layout

Floats = npt.NDArray[np.float64]


def denoise(layout: Layout, cells: Floats, marginals: Floats, total: float, variances: Floats) -> Floats:
    """Shares of the cells, shrunk to independence where the noise exceeds the association.

    With e the cell under independence and s² its noise, the deviation d of a cell has prior variance
    θe² (deviations in proportion to size), so its estimate is d·θe²/(θe² + s²), where θ is matched to
    the table's own deviations: θ = max(0, Σ(d² − s²)) / Σe².
    """
    if total <= 0:
        raise FedwiseError("target population must have records, got an estimate of 0; add clients to it")
    out = np.empty(layout.cells)
    for j in range(layout.tables):
        rows, columns = (np.maximum(marginals[side], 0.0) for side in layout.sides(j))
        expected = np.outer(rows / max(rows.sum(), 1e-300), columns / max(columns.sum(), 1e-300)) * total
        deviation = cells[layout.slice(j)].reshape(layout.shapes[j]) - expected
        if variances[j] > 0:
            size = float((expected**2).sum())
            theta = max(0.0, float((deviation**2 - variances[j]).sum())) / max(size, 1e-300)
            prior = theta * expected**2
            deviation = deviation * prior / (prior + variances[j])
        shares = np.maximum(expected + deviation, 0.0)
        out[layout.slice(j)] = (shares / shares.sum()).ravel()
    return out


def check_joined(layout: Layout, shares: Floats, variables: Sequence[int]) -> None:
    """Refuse tables that leave some of the variables unconnected: nothing would say how they go together."""
    tree = strongest_tree(layout, shares, variables=variables, root=variables[0])
    if len(tree) < len(variables) or any(parent is None for _, parent, _ in tree[1:]):
        raise FedwiseError("forecast needs tables that connect all variables; ask for more pairs in the plan")


def thin(sample: Sample, order: npt.NDArray[np.int64], records: int) -> tuple[Sample, npt.NDArray[np.int64]]:
    """Equally weighted records, taken systematically along `order` in proportion to weight, and which."""
    cumulative = np.cumsum(sample.weights[order])
    ticks = (np.arange(records) + 0.5) / records * cumulative[-1]
    chosen = order[np.minimum(np.searchsorted(cumulative, ticks), len(order) - 1)]
    return Sample(sample.codes[:, chosen], np.full(records, 1.0 / records)), chosen
