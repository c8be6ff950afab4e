"""Accounting: what discrete Gaussian noise really costs, composed table by table.

The closed formula of the Gaussian mechanism is for continuous noise. What leaves a client carries
*discrete* Gaussian noise, whose privacy loss sits on a lattice and costs a hair more. Here the loss
distributions are composed numerically, always rounding toward a larger cost.

Each table's loss is put on a common grid by connecting the dots of its privacy curve (Doroshenko,
Ghazi, Kamath, Kumar, Manurangsi 2022): the curve δ(e^ε) is convex, so the chord between grid points
lies above it and the discretised mechanism is never better than the true one. Composition is a
product of Fourier transforms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.fft import irfft, next_fast_len, rfft
from scipy.optimize import brentq

Floats = npt.NDArray[np.float64]

#: Mass cut off in the tails of the composed loss; it is added to delta.
TAIL = 1e-18
#: Grid step as a fraction of a table's standard deviation of loss: inflates the variance by (STEP/2)².
STEP = 0.02


@dataclass(frozen=True)
class LossDistribution:
    """Privacy loss of all tables together: masses `probabilities` at `losses`, and a mass at infinity."""

    losses: Floats
    probabilities: Floats
    infinite: float

    @classmethod
    def of(cls, sigmas: npt.ArrayLike) -> LossDistribution:
        """Compose one discrete Gaussian of sensitivity 1 for each scale in `sigmas`."""
        scales, repeats = np.unique(np.asarray(sigmas, dtype=np.float64), return_counts=True)
        if scales[0] <= 0:
            return cls(np.zeros(1), np.zeros(1), 1.0)
        rho = float(np.sum(repeats / (2 * scales**2)))
        # The discrete Gaussian is σ²-subgaussian (Canonne, Kamath, Steinke 2020), so the composed loss
        # leaves [ρ − t, ρ + t] with probability at most 2·exp(−t²/4ρ).
        reach = math.sqrt(4 * rho * math.log(1 / TAIL))
        step = STEP / float(scales[-1])
        low = math.floor((rho - reach) / step) - 1
        size = next_fast_len(math.ceil(2 * reach / step) + 4, real=True)
        spectrum = np.ones(size // 2 + 1, dtype=np.complex128)
        infinite = 2 * TAIL
        for scale, repeat in zip(scales, repeats, strict=True):
            index, mass, beyond = _connect_dots(float(scale), step, reach + rho)
            wrapped = np.zeros(size)
            np.add.at(wrapped, index % size, mass)
            spectrum *= rfft(wrapped) ** int(repeat)
            infinite += beyond * int(repeat)
        composed = np.maximum(irfft(spectrum, n=size), 0.0)
        index = low + (np.arange(size) - low) % size
        order = np.argsort(index)
        return cls(index[order] * step, composed[order], infinite)

    def delta(self, epsilon: float) -> float:
        """δ(ε) = P[loss = ∞] + E[(1 − e^(ε − loss))₊]."""
        above = self.losses > epsilon
        return self.infinite + float(
            np.sum(self.probabilities[above] * -np.expm1(epsilon - self.losses[above]))
        )

    def curve(self) -> tuple[Floats, Floats]:
        """All grid points ε ≥ 0 and δ at each of them, as `delta` gives it one by one."""
        ahead = self.losses >= 0
        losses, mass = self.losses[ahead], self.probabilities[ahead]
        above = np.cumsum(mass[::-1])[::-1]
        weighted = np.cumsum((mass * np.exp(-losses))[::-1])[::-1]
        return losses, self.infinite + np.maximum(above - np.exp(losses) * weighted, 0.0)

    def epsilon(self, delta: float) -> float:
        """Smallest ε ≥ 0 with δ(ε) ≤ `delta`; infinite where the mass at infinity alone exceeds it."""
        if self.infinite >= delta:
            return math.inf
        if self.delta(0.0) <= delta:
            return 0.0
        return float(brentq(lambda e: self.delta(e) - delta, 0.0, float(self.losses[-1]), xtol=1e-12))


def discrete_gaussian(sigma: float) -> tuple[npt.NDArray[np.int64], Floats]:
    """Support and probabilities of the discrete Gaussian, tails below 1e-30 left out."""
    reach = math.ceil(12 * sigma) + 2
    support = np.arange(-reach, reach + 1)
    density = np.exp(-(support**2) / (2 * sigma**2))
    return support, density / density.sum()


def _curve(sigma: float, epsilons: Floats) -> Floats:
    """δ(ε) = Σ_z (p(z) − e^ε·p(z+1))₊ of one table, exact up to rounding, at each ε."""
    support, p = discrete_gaussian(sigma)
    # The loss ln p(z)/p(z+1) = (2z+1)/(2σ²) grows with z, so the sum runs over z ≥ ε·σ² − ½ (strictly above).
    upper = np.concatenate([np.cumsum(p[::-1])[::-1], [0.0, 0.0]])
    first = np.floor(epsilons * sigma**2 - 0.5).astype(np.int64) + 1
    at = np.clip(first - int(support[0]), 0, len(support))
    return np.asarray(np.maximum(upper[at] - np.exp(epsilons) * upper[at + 1], 0.0), dtype=np.float64)


def _connect_dots(sigma: float, step: float, reach: float) -> tuple[npt.NDArray[np.int64], Floats, float]:
    """Masses on the grid whose privacy curve runs through the true one at the grid points.

    With x = e^ε the curve of masses p_i at ε_i is Σ p_i·(1 − x/x_i)₊: piecewise linear in x, its slope
    rising by p_i/x_i at x_i. Matching the true curve at the grid points gives every p_i.
    """
    own = min(reach, 0.5 / sigma**2 + 11.0 / sigma)
    last = math.ceil(own / step) + 1
    index = np.arange(-last, last + 1)
    curve = _curve(sigma, np.asarray(index * step, dtype=np.float64))
    rise = np.diff(curve) / math.expm1(step)  # slope times x_i on [x_i, x_{i+1}]
    slope_after = np.append(rise, 0.0)
    # Just before x_i, in units of 1/x_i: the previous chord, or the chord from (0, 1) for the first point.
    slope_before = np.concatenate([[curve[0] - 1.0], rise * math.exp(step)])
    mass = np.maximum(slope_after - slope_before, 0.0)
    return index, mass, float(curve[-1])
