"""Subsampled: what Gaussian noise costs when each step sees a random part of the rows, composed with releases.

One step of DP-SGD is a Gaussian mechanism on a Poisson sample of the rows. Its privacy loss has a closed form;
here it is put on a grid by splitting the mass of every interval between its two ends so that the probabilities
under both hypotheses stay what they are (the connect-the-dots rule of Doroshenko, Ghazi, Kamath, Kumar,
Manurangsi 2022), which never makes the mechanism look better than it is. Steps compose by Fourier transform.
Adding and removing a record give different losses (Zhu, Dong, Wang 2022); both are composed, the larger counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from ..deferred import Deferred
from ..errors import PlanError
from .accounting import LossDistribution, fast_length
from .scales import gaussian_delta

if TYPE_CHECKING:
    from scipy import optimize, special
else:
    optimize, special = Deferred("scipy.optimize"), Deferred("scipy.special")

Floats = npt.NDArray[np.float64]

#: Grid step as a share of the smallest standard deviation of a step's loss: adds (STEP/2)² to its variance.
STEP = 0.05
#: Probability cut off at each end of the composed loss; it is added to delta.
TAIL = 1e-15
#: Single losses are followed this many standard deviations out; what lies beyond counts as a certain leak.
REACH = 9.5
#: More grid points than this are not worth the memory: the step grows instead, toward a larger cost.
MOST_POINTS = 1 << 23


class Steps(NamedTuple):
    """Equal steps of noisy training: noise over clipping norm, share of the rows in a step, number of steps."""

    noise: float
    rate: float
    number: int


def epsilon(steps: Iterable[tuple[float, float, int]], delta: float, *, mu: float = 0.0) -> float:
    """ε at `delta` of all steps together with a Gaussian release of parameter `mu`.

    An upper bound for adding or removing one record, within about 0.1% of the true ε for 1000 steps.
    """
    summed: dict[tuple[float, float], int] = {}
    for noise, rate, number in steps:
        if number > 0:
            summed[noise, rate] = summed.get((noise, rate), 0) + number
    if any(noise <= 0 for noise, _ in summed) or math.isinf(mu):
        return math.inf
    if mu > 0:
        # A release is a Gaussian mechanism that looks at every row once.
        summed[1.0 / mu, 1.0] = summed.get((1.0 / mu, 1.0), 0) + 1
    if not summed:
        return 0.0
    return _epsilon(tuple(sorted((*key, number) for key, number in summed.items())), delta)


@lru_cache(maxsize=1024)
def _epsilon(parts: tuple[tuple[float, float, int], ...], delta: float) -> float:
    return max(
        compose([Steps(*part) for part in parts], removing=removing).epsilon(delta)
        for removing in (True, False)
    )


def compose(steps: list[Steps], *, removing: bool) -> LossDistribution:
    """Privacy loss of all `steps`, for one record removed (or added)."""
    step = STEP * min(_spread(part) for part in steps)
    while True:
        grids = [_discretise(part, step, removing=removing) for part in steps]
        low = math.floor(_bound(steps, grids, step, -1.0) / step) - 1
        high = math.ceil(_bound(steps, grids, step, 1.0) / step) + 1
        if high - low <= MOST_POINTS:
            break
        step *= (high - low) / MOST_POINTS * 1.01
    size = fast_length(high - low + 1)
    spectrum = np.ones(size // 2 + 1, dtype=np.complex128)
    infinite = 2 * TAIL
    for part, (first, mass, beyond) in zip(steps, grids, strict=True):
        wrapped = np.zeros(size)
        np.add.at(wrapped, (first + np.arange(len(mass))) % size, mass)
        spectrum *= np.fft.rfft(wrapped) ** part.number
        infinite += beyond * part.number
    composed: Floats = np.maximum(np.fft.irfft(spectrum, n=size), 0.0)
    index = low + np.arange(size)
    return LossDistribution(np.multiply(index, step, dtype=np.float64), composed[index % size], infinite)


def sampling(population: float, batch: int, epochs: int) -> tuple[float, int]:
    """Share of the rows in a step, and steps of one round: an epoch is ⌈population / batch⌉ steps."""
    return min(1.0, batch / population), epochs * math.ceil(population / batch)


@lru_cache(maxsize=1024)
def scale_noise(target: float, delta: float, rate: float, number: int) -> float:
    """Noise multiplier whose ε after `number` steps at `rate` is at most `target`, within 0.2%, rounded up.

    Raises
    ------
    PlanError
        No noise that could train keeps such a promise.
    """
    if not (math.isfinite(target) and target > 0 and 0 < delta < 1 and 0 < rate <= 1 and number > 0):
        raise PlanError(f"training epsilon must be a positive number, got {target}")

    def excess(log_noise: float) -> float:
        return math.log(max(epsilon([Steps(math.exp(log_noise), rate, number)], delta), 1e-12) / target)

    low, high = math.log(0.3), math.log(_start(target, delta, rate, number))
    high = max(high, low + 0.1)
    while excess(high) > 0:
        low, high = high, high + 0.7
        if high > math.log(1e5):
            raise PlanError(f"training epsilon {target} needs more noise than can train; raise it")
    while excess(low) < 0:
        high, low = low, low - 0.7
        if low < math.log(1e-3):
            return math.exp(high)
    root = math.exp(float(optimize.brentq(excess, low, high, xtol=3e-4)))
    while epsilon([Steps(root, rate, number)], delta) > target:
        root *= 1.0005
    return float(f"{root * (1 + 5e-6):.6g}")


def _start(target: float, delta: float, rate: float, number: int) -> float:
    """Noise by the central limit theorem of Gaussian DP (Bu, Dong, Long, Su 2020): a start, checked later."""
    if gaussian_delta(1e-6, target) >= delta:
        raise PlanError(f"training epsilon {target} needs more noise than can train; raise it")
    mu = float(optimize.brentq(lambda m: gaussian_delta(m, target) - delta, 1e-6, 1e3))
    if rate == 1.0:
        return math.sqrt(number) / mu
    return max(0.3, 1.0 / math.sqrt(math.log1p(mu**2 / (rate**2 * number))))


def _loss(part: Steps, x: Floats) -> Floats:
    """ln of the density with the record over the density without it, at outcome `x` of the noisy sum."""
    exponent = (2 * x - 1) / (2 * part.noise**2)
    if part.rate == 1.0:
        return exponent
    return np.logaddexp(math.log1p(-part.rate), math.log(part.rate) + exponent)


def _outcome(part: Steps, losses: Floats) -> Floats:
    """The outcome at which the loss takes each value; −∞ for values below all losses."""
    if part.rate == 1.0:
        return part.noise**2 * losses + 0.5
    with np.errstate(divide="ignore", invalid="ignore"):
        # e^ε − (1 − q) without cancellation: expm1(ε) + q.
        odds = (np.expm1(losses) + part.rate) / part.rate
        big = losses > 30.0
        log_odds = np.where(big, losses - math.log(part.rate), np.log(np.maximum(odds, 0.0)))
    return part.noise**2 * log_odds + 0.5


def _spread(part: Steps) -> float:
    """Standard deviation of one step's loss when the record is absent."""
    x = np.linspace(-REACH, REACH, 4001) * part.noise
    density = np.exp(-(x**2) / (2 * part.noise**2))
    density /= density.sum()
    loss = _loss(part, x)
    mean = float(density @ loss)
    return max(math.sqrt(float(density @ (loss - mean) ** 2)), 1e-9)


def _between(low: Floats, high: Floats) -> Floats:
    """Φ(high) − Φ(low), small differences kept in both tails."""
    return np.asarray(
        np.where(low > 0, special.ndtr(-low) - special.ndtr(-high), special.ndtr(high) - special.ndtr(low)),
        dtype=np.float64,
    )


def _discretise(part: Steps, step: float, *, removing: bool) -> tuple[int, Floats, float]:
    """First grid index, masses from there on, and the mass at infinity, of one step."""
    noise, rate = part.noise, part.rate
    ends = _loss(part, np.array([-REACH * noise, 1 + REACH * noise]))
    least, most = (float(ends[0]), float(ends[1])) if removing else (-float(ends[1]), -float(ends[0]))
    first, last = math.floor(least / step), math.ceil(most / step) + 1
    grid = np.arange(first, last + 1, dtype=np.float64) * step
    x = _outcome(part, grid if removing else -grid)
    low, high = (x[:-1], x[1:]) if removing else (x[1:], x[:-1])
    absent = _between(low / noise, high / noise)
    present = (1 - rate) * absent + rate * _between((low - 1) / noise, (high - 1) / noise)
    p, q = (present, absent) if removing else (absent, present)
    # Mass p on (a, b] goes to a and b so that Σ p and Σ p·e^−loss (the mass q) are both kept.
    upper = np.clip((p - np.exp(grid[:-1]) * q) / -math.expm1(-step), 0.0, p)
    masses = np.zeros(len(grid))
    masses[:-1] += p - upper
    masses[1:] += upper
    # Outcomes beyond the ends: better ones round up to the lowest loss, worse ones count as certain.
    below, above = (x[0], x[-1]) if removing else (x[-1], x[0])
    if removing:
        under = (1 - rate) * special.ndtr(below / noise) + rate * special.ndtr((below - 1) / noise)
        beyond = (1 - rate) * special.ndtr(-above / noise) + rate * special.ndtr((1 - above) / noise)
    else:
        under, beyond = special.ndtr(-above / noise), special.ndtr(below / noise)
    masses[0] += float(under)
    return first, masses, float(beyond)


def _bound(steps: list[Steps], grids: list[tuple[int, Floats, float]], step: float, sign: float) -> float:
    """A value the composed loss passes (above for sign 1, below for −1) with probability at most `TAIL`.

    Chernoff: P[Σ L ≥ r] ≤ min_t exp(Σ n·ln E e^(tL) − t·r).
    """
    best = math.inf
    for t in np.geomspace(1e-2, 1e4, 40):
        total = math.log(1 / TAIL)
        for part, (first, mass, _) in zip(steps, grids, strict=True):
            losses = sign * (first + np.arange(len(mass))) * step
            peak = float(losses.max()) if t * float(losses.max()) > 500 else 0.0
            total += part.number * (
                t * peak + math.log(max(float(mass @ np.exp(t * (losses - peak))), 1e-300))
            )
        best = min(best, total / t)
    return sign * best
