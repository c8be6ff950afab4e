"""People: the records whose predictions count, drawn from estimates and released sums together.

Estimates of clients are shrunk, each where it alone is uncertain, so their sum over many clients shows associations
between features that are too weak. A label that follows from several features is then told more easily than it is:
what two features say alike counts twice, and a forecast rises with the noise. The released tables summed over the same
clients have no such bias, and for many clients little noise. So each table of the people is

    estimated + w · (released − estimated),    w = max(0, 1 − Σ s² / Σ d²)

with d the released table's distance from independence, cell by cell, and s the noise of a cell: w is the share of what
is seen there that is no noise, near 1 for a pool and 0 for a client whose release shows nothing.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..estimation.consistency import consistent
from ..estimation.estimates import Estimates
from .thinning import denoise

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def estimated_shares(estimates: Estimates, counts: tuple[Floats, Floats, Floats], members: Ints) -> Floats:
    """Shares of the cells of some clients' tables, from their estimates; see `moments.consistent_counts`."""
    cells, marginals, totals = (part[members].sum(axis=0) for part in counts)
    # Shrinkage has taken the noise out of the pool's tables already.
    noisy = estimates.estimator != "shrinkage"
    variances = np.sum(estimates.sigmas[members] ** 2, axis=0) * noisy
    return denoise(estimates.layout, cells, marginals, float(totals), variances)


def people_shares(estimates: Estimates, counts: tuple[Floats, Floats, Floats], members: Ints) -> Floats:
    """The same, moved towards the sums of what these clients released, table by table, by what is known there."""
    shares = estimated_shares(estimates, counts, members)
    noise = np.sqrt(np.sum(estimates.sigmas[members] ** 2, axis=0))
    if estimates.estimator != "shrinkage" or estimates.released is None or not noise.any():
        return shares
    layout = estimates.layout
    whole = estimates.released[members].sum(axis=0, keepdims=True)
    released, marginals, totals, _ = consistent(whole, layout, noise[None])
    if totals[0] <= 0:
        return shares
    for j in range(layout.tables):
        here = layout.slice(j)
        rows, columns = (np.maximum(marginals[0, side], 0.0) / totals[0] for side in layout.sides(j))
        seen = released[0, here] / totals[0]
        size = float(np.sum((seen - np.outer(rows, columns).ravel()) ** 2))
        spread = seen.size * float(noise[j] / totals[0]) ** 2
        known = max(0.0, 1.0 - spread / size) if size > 0 else 0.0
        moved = np.maximum(shares[here] + known * (seen - shares[here]), 0.0)
        shares[here] = moved / moved.sum()
    return shares
