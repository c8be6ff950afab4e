"""Together: what all tables of a noisy client say at once, along the directions in which clients of its pool differ.

Shrinkage looks at each table of a client by itself. Clients that differ in one table differ in others too, and where
noise drowns every single table their common voice may still be heard. With A the main axes of the clients' estimated
proportions around their mean μ,

    p_i = μ + A f_i,    f_i ~ N(0, I),    x_ij = p_ij + noise of variance v_ij in table j,

    f̂_i = (I + Σ_j A_jᵀA_j / v_ij)⁻¹ Σ_j A_jᵀ(x_ij − μ_j) / v_ij.

A is taken twice: of all clients, and of those who are known well alone, who differ as clients truly do but are few. The
answer is the mean of both and of what shrinkage says; each errs in its own way, and their mean less than any of them.
Figures: docs/results/variants.md.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ..schema.layout import Layout
from .consistency import consistent
from .estimates import Estimates
from .shrinkage import FLOOR

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

#: Main axes that are used; more say nothing further.
_AXES = 16
#: Clients known well that make axes of their own.
_LEAST_KNOWN = 3


def told_together(estimates: Estimates, noisy: Flags) -> Estimates:
    """Estimates whose noisy clients are moved half of the way to what their tables say together.

    Parameters
    ----------
    noisy
        Shape (clients,): who is moved; the others are taken for known well.
    """
    noisy = noisy & estimates.sigmas.all(axis=1)  # what has no noise stays as it is
    if estimates.released is None or not noisy.any() or len(noisy) < 2:
        return estimates
    layout, totals = estimates.layout, estimates.totals
    own = estimates.cells / totals[:, None]
    seen = estimates.released[noisy] / totals[noisy, None]
    variance = estimates.sigmas[noisy] ** 2 / totals[noisy, None] ** 2
    pictures = [own]
    if np.count_nonzero(~noisy) >= _LEAST_KNOWN:
        pictures.append(own[~noisy])
    told = np.mean([_told(picture, seen, variance, layout) for picture in pictures], axis=0)
    cells = own.copy()
    cells[noisy] = np.maximum((own[noisy] + told) / 2, FLOOR * np.maximum(own[noisy], 0.0))
    for j in range(layout.tables):
        here = layout.slice(j)
        whole = cells[:, here].sum(axis=1)
        cells[:, here] *= np.divide(totals, whole, out=np.zeros_like(whole), where=whole > 0)[:, None]
    found, marginals, totals, _ = consistent(cells, layout, np.ones(layout.tables))
    return replace(
        estimates, cells=np.maximum(found, 0.0), marginals=np.maximum(marginals, 0.0), totals=totals
    )


def _told(picture: Floats, seen: Floats, variance: Floats, layout: Layout) -> Floats:
    """Proportions of clients by their noisy ones, if they differ as the clients of `picture` do.

    Parameters
    ----------
    picture
        Shape (clients, cells): proportions.
    seen, variance
        Shapes (noisy clients, cells) and (noisy clients, tables): noisy proportions, and the variance of their noise.
    """
    mean = picture.mean(axis=0)
    _, scales, axes = np.linalg.svd((picture - mean) / np.sqrt(len(picture) - 1), full_matrices=False)
    axes = axes[:_AXES].T * scales[:_AXES]
    width = axes.shape[1]
    precision = np.tile(np.eye(width), (len(seen), 1, 1))
    right = np.zeros((len(seen), width))
    for j in range(layout.tables):
        here = layout.slice(j)
        v = variance[:, j]
        weight = np.divide(1.0, v, out=np.zeros_like(v), where=v > 0)
        precision += weight[:, None, None] * (axes[here].T @ axes[here])
        right += weight[:, None] * ((seen[:, here] - mean[here]) @ axes[here])
    factors = np.linalg.solve(precision, right[..., None])[..., 0]
    return np.asarray(mean + factors @ axes.T)
