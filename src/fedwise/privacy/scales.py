"""Scales: how much noise a promise (epsilon, delta) asks for.

A record adds 1 to one cell of each of M tables. With precision shares q_j (Σ q_j = 1) and scales
σ_j = s / √q_j, dividing table j by σ_j gives one Gaussian mechanism of sensitivity
√(Σ 1/σ_j²) = 1/s and unit noise: the promise depends on s alone, however the shares are cut.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..deferred import Deferred
from ..errors import PlanError
from .accounting import LossDistribution, gaussian_curve

if TYPE_CHECKING:
    from scipy import optimize
else:
    optimize = Deferred("scipy.optimize")

Floats = npt.NDArray[np.float64]

#: Headroom on σ: covers what discrete noise costs above the formula, and lets a coarse independent
#: accountant (dp-accounting on its default grid of 1e-4, 55 tables) confirm the promise too. 0.29% more noise.
SLACK = 2.9e-3
#: More than the Fourier transform of the accountant can lose of a δ; the smallest δ of a promise is 1e-12.
ROUNDING = 1e-15
#: How the headroom on μ grows until it covers a release (`covering_mu`).
SLACK_GROWTH = 1.25
#: The curve of a release is compared with the Gaussian's down to this δ: below lies the rounding of the FFT.
COVERED_FROM = 1e-12


def gaussian_delta(mu: float, epsilon: float) -> float:
    """δ of the Gaussian mechanism with sensitivity/σ = `mu` at one `epsilon` (`gaussian_curve`)."""
    return float(gaussian_curve(mu, np.asarray(epsilon, dtype=np.float64))) if mu > 0 else 0.0


@lru_cache(maxsize=256)
def gaussian_epsilon(mu: float, delta: float) -> float:
    """Smallest ε ≥ 0 with δ(ε) ≤ `delta` for a μ-Gaussian-DP release; infinite for infinite μ."""
    if math.isinf(mu):
        return math.inf
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    high = 1.0
    while gaussian_delta(mu, high) > delta:
        high *= 2
    root = float(optimize.brentq(lambda e: gaussian_delta(mu, e) - delta, 0.0, high, xtol=1e-14, rtol=1e-14))
    return _nudge(root, lambda e: gaussian_delta(mu, e) <= delta, up=True)


@lru_cache(maxsize=256)
def gaussian_mu(epsilon: float, delta: float) -> float:
    """Largest μ whose Gaussian mechanism keeps (`epsilon`, `delta`): the inverse of `gaussian_epsilon`.

    Rounded toward privacy: the returned μ satisfies δ(ε) ≤ δ, not merely almost.
    """
    low, high = 1e-12, 1.0
    while gaussian_delta(high, epsilon) < delta:
        high *= 2
    root = float(
        optimize.brentq(lambda m: gaussian_delta(m, epsilon) - delta, low, high, xtol=1e-15, rtol=1e-14)
    )
    return _nudge(root, lambda m: gaussian_delta(m, epsilon) <= delta, up=False)


def tight_scale(epsilon: float, delta: float) -> float:
    """s(ε, δ) = 1/μ: noise scale of one unit-sensitivity Gaussian release."""
    return 1.0 / gaussian_mu(epsilon, delta)


def rdp_scale(epsilon: float, delta: float) -> float:
    """The paper's closed form by Rényi DP for one table (PAPER eq. for σ with M = 1).

    σ = (√(2·ln(1/δ)) + √(2·(ln(1/δ) + ε))) / (2ε)
    """
    log = math.log(1 / delta)
    return (math.sqrt(2 * log) + math.sqrt(2 * (log + epsilon))) / (2 * epsilon)


def check_promise(epsilon: float, delta: float) -> None:
    """Refuse a promise that means nothing."""
    if not epsilon > 0:
        raise PlanError(
            f"epsilon must be above 0, got {epsilon:g}; 1.0 is a common choice, 'inf' means no privacy"
        )
    if epsilon < 1e-4:
        raise PlanError(
            f"epsilon must be at least 0.0001, got {epsilon:g}; below that the tables are only noise"
        )
    if not math.isinf(epsilon) and epsilon > 100:
        raise PlanError(f"epsilon must be at most 100, got {epsilon:g}; use 'inf' to say openly: no privacy")
    if not 0 < delta < 1:
        raise PlanError(
            f"delta must lie between 0 and 1, got {delta:g}; use far less than 1 / records, e.g. 1e-5"
        )
    if delta < 1e-12:
        raise PlanError(
            f"delta must be at least 1e-12, got {delta:g}; smaller values are beyond the accountant"
        )


def check_calibration(calibration: str) -> None:
    """Refuse a name that is none."""
    if calibration not in ("tight", "rdp"):
        raise PlanError(f"calibration must be tight or rdp, got '{calibration}'")


def calibrate(
    epsilon: float, delta: float, shares: Floats, *, calibration: str = "tight"
) -> tuple[Floats, float]:
    """Noise scale of each table, and the μ that the whole release is charged with.

    Parameters
    ----------
    epsilon, delta
        The promise for one record added or removed.
    shares
        Precision shares of the tables, positive, summing to 1.
    calibration
        ``tight``: analytic Gaussian, checked and if need be enlarged until the *discrete* Gaussian that
        is really drawn keeps the promise. ``rdp``: the paper's closed form.

    Returns
    -------
    sigmas, mu
        Scales, shape (tables,), rounded up; μ of Gaussian DP that covers the release (`covering_mu`).
    """
    check_promise(epsilon, delta)
    check_calibration(calibration)
    if math.isinf(epsilon):
        return np.zeros(len(shares)), math.inf
    slack = SLACK
    while True:
        scale = (
            tight_scale(epsilon, delta) * (1 + slack) if calibration == "tight" else rdp_scale(epsilon, delta)
        )
        sigmas = round_up(scale / np.sqrt(shares))
        losses = LossDistribution.of(sigmas)
        # The margin lets the same sum, rounded otherwise on another machine, confirm the promise too.
        if keeps(losses, epsilon, delta * (1 - 1e-6) - ROUNDING):
            return sigmas, covering_mu(sigmas, losses)
        slack *= 1.5


def covering_mu(sigmas: Floats, losses: LossDistribution) -> float:
    """μ of a Gaussian mechanism that is nowhere better than the discrete one with these scales.

    With many tables the headroom on σ is enough; few tables with little noise sit on a coarse lattice
    of losses and need more.
    """
    spent = math.sqrt(float(np.sum(sigmas**-2.0)))
    slack = SLACK
    while not covers((1 + slack) * spent, losses):
        slack *= SLACK_GROWTH
    return (1 + slack) * spent


def overstates(mu: float, sigmas: Floats, losses: LossDistribution) -> bool:
    """Whether `mu` is above anything that `covering_mu` gives for these scales, on any machine.

    A charge that is too large empties an owner's budget for nothing. Two steps of slack below an honest μ no
    longer cover the release: one is how `covering_mu` searches, the other is for the rounding of another
    machine.
    """
    spent = math.sqrt(float(np.sum(sigmas**-2.0)))
    slack = mu / spent - 1
    if slack <= SLACK * SLACK_GROWTH:
        return False
    return not math.isfinite(mu) or covers((1 + slack / SLACK_GROWTH**2) * spent, losses)


def keeps(losses: LossDistribution, epsilon: float, delta: float) -> bool:
    """Whether the composed loss keeps the promise, whatever the Fourier transform rounded away."""
    return losses.delta(epsilon) + ROUNDING <= delta


def covers(mu: float, losses: LossDistribution, *, tolerance: float = 1e-9) -> bool:
    """Whether the Gaussian curve δ(ε; μ) lies on or above the release's own at *every* ε ≥ 0.

    The ledger adds up μ² over releases: that is sound only under this condition, not under the same
    condition at the promised ε alone.
    """
    epsilons, deltas = losses.curve()
    seen = deltas > COVERED_FROM
    return bool(np.all(gaussian_curve(mu, epsilons[seen]) >= deltas[seen] * (1 - tolerance)))


def round_up(values: Floats, *, digits: int = 6) -> Floats:
    """Round to `digits` significant digits, never down: more noise, more privacy, readable files."""
    step = 10.0 ** (np.floor(np.log10(values)) - digits + 1)
    rounded: Floats = np.ceil(values / step) * step
    # Drop binary dust (27.700000000000003), staying on the safe side.
    clean = np.array([float(f"{v:.{digits}g}") for v in rounded])
    return np.where(clean >= values, clean, rounded)


def _nudge(root: float, holds: object, *, up: bool) -> float:
    """Move a root by relative 1e-13 steps until the inequality really holds."""
    assert callable(holds)
    step = 1e-13
    while not holds(root):
        root *= 1 + step if up else 1 - step
        step *= 2
    return root
