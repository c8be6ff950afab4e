"""Redraw: the pool as it might have been released with another draw of the noise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from .estimates import Estimates, Floats
from .shrinkage import shrink_each

#: Clients × cells up to which redraws are kept.
_SMALL = 500_000
#: Redraws that are estimated together: at most this many, and this many numbers in all.
_TOGETHER, _NUMBERS = 10, 2_000_000


def redraws(estimates: Estimates, seed: int, numbers: Sequence[int]) -> Iterator[Estimates]:
    """The redraws of this seed and these numbers, in order; a few are estimated at a time.

    A redraw depends on its seed and number alone. The first are kept: every question about a pool asks for the same.
    """
    step = _together(estimates)
    keep = estimates.cells.size <= _SMALL
    for start in range(0, len(numbers), step):
        asked = [(seed, number) for number in numbers[start : start + step]]
        missing = [key for key in asked if key not in estimates.cache]
        made = dict(zip(missing, redraw_each(estimates, [_generator(*key) for key in missing]), strict=True))
        for key in asked:
            yield estimates.cache.get(key, lambda key=key, made=made: made[key], keep=keep)  # type: ignore[misc]


def _together(estimates: Estimates) -> int:
    """How many redraws are estimated at a time."""
    return min(_TOGETHER, max(1, _NUMBERS // max(estimates.cells.size, 1)))


def _generator(seed: int, number: int) -> np.random.Generator:
    return np.random.default_rng([seed & 0xFFFFFFFFFFFFFFFF, 13, number])


def redraw(estimates: Estimates, rng: np.random.Generator) -> Estimates:
    """Estimates of a new release of the same clients: a parametric bootstrap.

    The estimated cells stand for the true counts. Fresh normal noise of the scale of its release is added to
    every cell of every client, independently, and the same estimator runs again, its between-client
    variances included. A client that is chosen again in most redraws was not chosen by the noise alone.

    Shrunk estimates differ less from one another than the true tables do, so frequencies over redraws
    are those of a pool somewhat harder to tell apart than the real one. Without noise the estimates
    come back as they are.

    Parameters
    ----------
    rng
        Randomness; equal generators give equal redraws.
    """
    return redraw_each(estimates, [rng])[0]


def redraw_each(estimates: Estimates, generators: Sequence[np.random.Generator]) -> list[Estimates]:
    """`redraw` with each of the generators, a few estimated at a time."""
    if not np.any(estimates.sigmas):
        return [estimates] * len(generators)
    step = _together(estimates)
    some = (generators[start : start + step] for start in range(0, len(generators), step))
    return [one for few in some for one in _redrawn(estimates, few)]


def _redrawn(estimates: Estimates, generators: Sequence[np.random.Generator]) -> list[Estimates]:
    scale = estimates.layout.per_cell(estimates.sigmas)
    noisy = np.stack([rng.standard_normal(estimates.cells.shape) for rng in generators])
    noisy *= scale
    noisy += estimates.cells
    if estimates.estimator == "plain":
        kind = (estimates.clients, estimates.schema, estimates.layout)
        return [Estimates.plain(*kind, one, estimates.sigmas) for one in noisy]
    return estimated_again(estimates, noisy, estimates.sigmas)


def estimated_again(estimates: Estimates, matrices: Floats, sigmas: Floats) -> list[Estimates]:
    """Shrinkage estimates of other tables (pools, clients, cells) of the same clients, with noise of these scales."""
    return [
        replace(
            estimates,
            cells=found.cells,
            marginals=found.marginals,
            totals=found.totals,
            sigmas=sigmas,
            posterior=found.posterior,
            released=cells,
            joint=None,
        )
        for cells, found in zip(matrices, shrink_each(matrices, estimates.layout, sigmas), strict=True)
    ]
