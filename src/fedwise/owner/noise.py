"""Noise: the discrete Gaussian that turns exact tables into counts that may leave.

Real releases use OpenDP's sampler, which draws exact integers from the operating system's entropy:
no floating-point leak, no seed. The seeded sampler is for simulations on public data, and whatever
it makes is marked ``simulated``.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NewType

import numpy as np
import numpy.typing as npt

from ..privacy.accounting import discrete_gaussian
from .tables import Tables

#: Counts that carry noise. Exact counts are `Tables`; the two do not mix.
NoisyCounts = NewType("NoisyCounts", npt.NDArray[np.int64])


def add_noise(tables: Tables, sigmas: npt.NDArray[np.float64]) -> NoisyCounts:
    """Add discrete Gaussian noise, with the scale of each table, from the operating system's entropy."""
    layout = tables.layout
    noisy = np.empty(layout.cells, dtype=np.int64)
    scales = layout.per_cell(np.asarray(sigmas, dtype=np.float64))
    # Tables of one scale are one call: the noise of every cell is independent, and calls cost more than draws.
    for sigma in np.unique(scales):
        here = scales == sigma
        noisy[here] = _measurement(float(sigma))(tables.exact[here])
    return NoisyCounts(noisy)


def add_simulated_noise(
    tables: Tables, sigmas: npt.NDArray[np.float64], rng: np.random.Generator
) -> NoisyCounts:
    """The same distribution from a seeded generator. For experiments only: a seed undoes the privacy."""
    layout = tables.layout
    noisy = tables.exact.copy()
    for j, sigma in enumerate(sigmas):
        here = layout.slice(j)
        support, cumulative = _cumulative(float(sigma))
        draws = np.searchsorted(cumulative, rng.random(here.stop - here.start), side="right")
        noisy[here] += support[np.minimum(draws, len(support) - 1)]
    return NoisyCounts(noisy)


def no_noise(tables: Tables) -> NoisyCounts:
    """Exact counts as they are, for plans that openly promise nothing (epsilon infinite)."""
    return NoisyCounts(tables.exact.copy())


@cache
def _measurement(sigma: float) -> Any:
    # Not opendp.prelude, which imports scikit-learn: that takes longer than a release.
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_gaussian
    from opendp.metrics import l2_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    return make_gaussian(vector_domain(atom_domain(T="i64")), l2_distance(T="f64"), scale=sigma)


@cache
def _cumulative(sigma: float) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    support, probabilities = discrete_gaussian(sigma)
    return support, np.cumsum(probabilities)
