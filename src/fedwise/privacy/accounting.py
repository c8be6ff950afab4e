"""Accounting: what discrete Gaussian noise really costs, composed table by table.

The closed formula of the Gaussian mechanism is for continuous noise. What leaves a client carries
*discrete* Gaussian noise, whose privacy loss sits on a lattice and costs slightly more. Here the loss
distributions are composed numerically, always rounding toward a larger cost. Tables whose noise is so wide
that the lattice no longer matters enter the composition together, as one continuous Gaussian.

Each table's loss is put on a common grid by connecting the dots of its privacy curve (Doroshenko,
Ghazi, Kamath, Kumar, Manurangsi 2022): the curve δ(e^ε) is convex, so the chord between grid points
lies above it and the discretised mechanism is never better than the true one. Composition is a
product of Fourier transforms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..deferred import Deferred

if TYPE_CHECKING:
    from scipy import optimize, special
else:
    # Every reader of a release checks its plan, and few need the whole of scipy for it.
    optimize, special = Deferred("scipy.optimize"), Deferred("scipy.special")

Floats = npt.NDArray[np.float64]
#: Grid indices, the mass at each, and the mass beyond the last.
Dots = tuple[npt.NDArray[np.int64], Floats, float]

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
    def of(cls, sigmas: npt.ArrayLike, *, gaussian: float = 0.0) -> LossDistribution:
        """Compose one discrete Gaussian of sensitivity 1 for each scale in `sigmas`, and a continuous one.

        Parameters
        ----------
        sigmas
            Scales of the discrete Gaussians; none only beside a continuous one.
        gaussian
            μ (sensitivity/σ) of one continuous Gaussian mechanism released beside them; 0 for none.
        """
        scales, repeats = np.unique(np.asarray(sigmas, dtype=np.float64), return_counts=True)
        if scales.size and scales[0] <= 0:
            return cls(np.zeros(1), np.zeros(1), 1.0)
        rho = float(np.sum(repeats / (2 * scales**2))) + gaussian**2 / 2
        # The discrete Gaussian is σ²-subgaussian (Canonne, Kamath, Steinke 2020), so the composed loss
        # leaves [ρ − t, ρ + t] with probability at most 2·exp(−t²/4ρ).
        reach = math.sqrt(4 * rho * math.log(1 / TAIL))
        step = STEP / float(scales[-1]) if scales.size else STEP * gaussian
        low = math.floor((rho - reach) / step) - 1
        size = fast_length(math.ceil(2 * reach / step) + 4)
        spectrum = np.ones(size // 2 + 1, dtype=np.complex128)
        infinite = 2 * TAIL
        parts = [
            (_discrete_dots(float(s), step, reach + rho), int(n))
            for s, n in zip(scales, repeats, strict=True)
        ]
        if gaussian > 0:
            parts.append((_gaussian_dots(gaussian, step, reach + rho), 1))
        for (index, mass, beyond), repeat in parts:
            wrapped = np.zeros(size)
            np.add.at(wrapped, index % size, mass)
            spectrum *= np.fft.rfft(wrapped) ** repeat
            infinite += beyond * repeat
        composed: Floats = np.maximum(np.fft.irfft(spectrum, n=size), 0.0)
        index = low + (np.arange(size) - low) % size
        order = np.argsort(index)
        return cls(np.multiply(index[order], step, dtype=np.float64), composed[order], infinite)

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
        return float(
            optimize.brentq(lambda e: self.delta(e) - delta, 0.0, float(self.losses[-1]), xtol=1e-12)
        )


def fast_length(least: int) -> int:
    """The smallest 2^a·3^b·5^c of at least `least`: lengths of which the Fourier transform is fast."""
    bits = least.bit_length()
    odd = [int(3**b * 5**c) for b in range(bits) for c in range(bits)]
    return min(factor << (-(-least // factor) - 1).bit_length() for factor in odd if factor < 2 * least)


def gaussian_curve(mu: float, epsilons: Floats) -> Floats:
    """δ(ε) of the Gaussian mechanism with sensitivity/σ = `mu`, at each ε (Balle & Wang 2018, eq. 6).

    δ = Φ(μ/2 − ε/μ) − e^ε · Φ(−μ/2 − ε/μ)
    """
    first = special.log_ndtr(mu / 2 - epsilons / mu)
    second = epsilons + special.log_ndtr(-mu / 2 - epsilons / mu)
    return np.asarray(np.exp(first) * -np.expm1(np.minimum(second - first, 0.0)), dtype=np.float64)


def discrete_gaussian(sigma: float) -> tuple[npt.NDArray[np.int64], Floats]:
    """Support and probabilities of the discrete Gaussian, tails below 1e-30 left out."""
    reach = math.ceil(12 * sigma) + 2
    support = np.arange(-reach, reach + 1)
    density = np.exp(-(support**2) / (2 * sigma**2))
    return support, density / density.sum()


def discrete_curve(sigma: float, epsilons: Floats) -> Floats:
    """δ(ε) = Σ_z (p(z) − e^ε·p(z+1))₊ of one table, exact up to rounding, at each ε."""
    support, p = discrete_gaussian(sigma)
    # The loss ln p(z)/p(z+1) = (2z+1)/(2σ²) grows with z, so the sum runs over z ≥ ε·σ² − ½ (strictly above).
    upper = np.concatenate([np.cumsum(p[::-1])[::-1], [0.0, 0.0]])
    first = np.floor(epsilons * sigma**2 - 0.5).astype(np.int64) + 1
    at = np.clip(first - int(support[0]), 0, len(support))
    return np.asarray(np.maximum(upper[at] - np.exp(epsilons) * upper[at + 1], 0.0), dtype=np.float64)


def _discrete_dots(sigma: float, step: float, reach: float) -> Dots:
    """One table's loss on the grid."""
    grid = _grid(min(reach, 0.5 / sigma**2 + 11.0 / sigma), step)
    return _connect_dots(grid, step, discrete_curve(sigma, np.multiply(grid, step, dtype=np.float64)))


def _gaussian_dots(mu: float, step: float, reach: float) -> Dots:
    """A continuous Gaussian's loss on the grid."""
    grid = _grid(min(reach, 0.5 * mu**2 + 11.0 * mu), step)
    return _connect_dots(grid, step, gaussian_curve(mu, np.multiply(grid, step, dtype=np.float64)))


def _grid(reach: float, step: float) -> npt.NDArray[np.int64]:
    last = math.ceil(reach / step) + 1
    return np.arange(-last, last + 1)


def _connect_dots(index: npt.NDArray[np.int64], step: float, curve: Floats) -> Dots:
    """Masses on the grid whose privacy curve runs through the true one at the grid points.

    With x = e^ε the curve of masses p_i at ε_i is Σ p_i·(1 − x/x_i)₊: piecewise linear in x, its slope
    rising by p_i/x_i at x_i. Matching the true curve at the grid points gives every p_i.
    """
    rise = np.diff(curve) / math.expm1(step)  # slope times x_i on [x_i, x_{i+1}]
    slope_after = np.append(rise, 0.0)
    # Just before x_i, in units of 1/x_i: the previous chord, or the chord from (0, 1) for the first point.
    slope_before = np.concatenate([[curve[0] - 1.0], rise * math.exp(step)])
    mass = np.maximum(slope_after - slope_before, 0.0)
    return index, mass, float(curve[-1])
