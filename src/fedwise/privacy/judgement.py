"""Judgement: whether the noise that a plan names keeps its promise, and whether its charge is what the noise costs."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from .accounting import STEP, TAIL, LossDistribution
from .scales import SLACK, SLACK_GROWTH, covers, gaussian_delta, keeps, overstates

Floats = npt.NDArray[np.float64]

#: Plans of others are checked with the exact accountant of discrete noise where σ is below this. Tables above
#: enter it together as one continuous Gaussian: their lattice no longer matters, and the accountant's arrays
#: would grow with σ.
EXACT_BELOW = 2000.0
#: The same beside a score. Its noise is far narrower than that of tables, so a grid as fine as these need would hold so
#: many points that rounding, added over all of them, looks like a loss.
FINE_BESIDE_SCORE = 20.0
#: What the continuous Gaussian's μ is enlarged by, relatively, so that it is nowhere better than discrete noise
#: of σ ≥ EXACT_BELOW, and of σ ≥ FINE_BESIDE_SCORE. The true difference is about 1/(24σ²): 1e-8 and 1e-4.
LATTICE, LATTICE_BESIDE_SCORE = 1e-6, 1e-3


def composed(sigmas: Floats, *, score: float | None = None) -> LossDistribution:
    """Privacy loss of tables of these scales together; at least one must be below `EXACT_BELOW`, or there is a score.

    Parameters
    ----------
    score
        Scale of the noise of a score released beside them, in whole scores. It is drawn on a lattice of parts of a
        score, as fine beside its noise as that of wide tables, so it enters the accountant as a Gaussian.
    """
    coarse, gaussian = _parted(sigmas, score)
    return LossDistribution.of(coarse, gaussian=gaussian)


def work(sigmas: Floats, *, score: float | None = None) -> float:
    """Size of the exact accountant's task: numbers in its grid (`LossDistribution.of`) times distinct scales."""
    coarse, gaussian = _parted(sigmas, score)
    scales, repeats = np.unique(coarse, return_counts=True)
    if scales.size == 0:
        return 0.0
    rho = float(np.sum(repeats / (2 * scales**2))) + gaussian**2 / 2
    grid = 2 * math.sqrt(4 * rho * math.log(1 / TAIL)) * float(scales[-1]) / STEP
    return grid * (scales.size + 4)  # 4: putting the grid in order and reading its curve


@lru_cache(maxsize=64)
def fault(
    sigmas: tuple[float, ...], epsilon: float, delta: float, mu: float, *, score: float | None = None
) -> str | None:
    """What is wrong with the noise or the charge of a plan, or None.

    Discrete Gaussian noise of these scales must keep the promise, all tables together, and `mu` must be what
    it costs: less would let a ledger overspend, more would empty it for nothing. Cached: every release of a
    pool carries the same plan.
    """
    too_little = "carries less noise than its promise needs"
    too_low, too_high = "charges less than its noise costs", "charges more than its noise costs"
    scales = np.array(sigmas)
    every = scales if score is None else np.append(scales, score)
    spent = (1 + LATTICE) * math.sqrt(float(np.sum(every**-2.0)))
    if gaussian_delta(spent, epsilon) > delta:
        return too_little
    if not mu >= spent:
        return too_low
    if score is None and not np.any(scales < EXACT_BELOW):
        # All tables are one Gaussian, and its own μ covers it.
        return too_high if mu > (1 + SLACK * SLACK_GROWTH) * spent else None
    losses = composed(scales, score=score)
    if not keeps(losses, epsilon, delta):
        return too_little
    # The tolerance is the rounding of another machine's Fourier transform.
    if not covers(mu, losses, tolerance=1e-6):
        return too_low
    return too_high if overstates(mu, every, losses) else None


def _parted(sigmas: Floats, score: float | None) -> tuple[Floats, float]:
    """Scales that enter the accountant one by one, and μ of one Gaussian that is nowhere better than all others."""
    limit, lattice = (EXACT_BELOW, LATTICE) if score is None else (FINE_BESIDE_SCORE, LATTICE_BESIDE_SCORE)
    fine = sigmas[sigmas >= limit] if score is None else np.append(sigmas[sigmas >= limit], score)
    return sigmas[sigmas < limit], (1 + lattice) * math.sqrt(float(np.sum(fine**-2.0)))
