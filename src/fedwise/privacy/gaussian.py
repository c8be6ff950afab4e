"""Gaussian noise on a grid of integers, exact: the rounded Gaussian.

For an integer v and g ~ N(0, σ²), round(v + g) = v + round(g). So an integer sum plus round(g) is the
continuous Gaussian mechanism followed by rounding: post-processing. Whatever an accountant says of the
continuous mechanism (subsampled, composed) holds for it without a correction, and the result is an
integer: it has no low-order bits in which a floating-point sampler could leave a trace of v. Its law is

    P(k) = Φ((k + ½)/σ) − Φ((k − ½)/σ),    variance σ² + 1/12 up to e^(−2π²σ²).

A draw is the nearest integer to σ·R·cos θ or σ·R·sin θ, with R = √(−2 ln U₁), θ = 2πU₂ (Box and Muller
1958) and uniform U₁, U₂ known to 64 bits. Double precision decides it unless the value lies within a
bound of the error (`_SLACK`) of a half; then 192 more bits of each uniform are drawn and the value is
computed to 80 digits. This happens about once in a million draws and depends on the noise alone.

What is assumed: the words are uniform; ln, √, sin and cos of the C library and of NumPy are right to
some hundred units in the last place (a test compares them with 80 digits). Given this, the statistical
distance from the law above is below 2⁻¹⁵⁰ a draw, so nothing is added to δ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext

import numpy as np
import numpy.typing as npt

from ..errors import FedwiseError

Ints = npt.NDArray[np.int64]
#: Draws as many uniform 64-bit words as asked.
Words = Callable[[int], npt.NDArray[np.uint64]]

#: Largest scale: beyond it double precision decides too few draws.
LARGEST = 2.0**44
#: Error of σ·R·cos θ in double precision: at most σ·_SLACK·(1 + R + 1/R) where U₁ ≥ 2⁻²⁰.
#: Conversion of U₁, its cut at 64 bits (relative 2⁻⁴⁵ there) and ln give R an error below 2⁻⁴⁵/R + 2⁻⁵²·R;
#: θ is right to 2⁻⁴⁸·⁷ and cos to 4 units in the last place, which R multiplies.
_SLACK = 2.0**-44
_LEAST = np.uint64(2**44)
_DIGITS = Context(prec=80)
_TURN = Decimal(  # 2π
    "6.2831853071795864769252867665590057683943387987502116419498891846156328125724179972560696506842"
)


def rounded_gaussian(sigma: float, count: int, words: Words) -> Ints:
    """`count` independent draws of round(N(0, sigma²)).

    Raises
    ------
    FedwiseError
        `sigma` is negative, not a number, or larger than `LARGEST`.
    """
    if not 0 <= sigma <= LARGEST:
        raise FedwiseError(f"scale of the noise must be between 0 and {LARGEST:.3g}, got {sigma}")
    if sigma == 0:
        return np.zeros(count, dtype=np.int64)
    pairs = (count + 1) // 2
    drawn = words(2 * pairs)
    first, second = drawn[:pairs], drawn[pairs:]
    values, radius = box_muller(first, second)
    with np.errstate(divide="ignore"):
        slack = (sigma * _SLACK) * (1.0 + radius + 1.0 / radius)
    values *= sigma
    nearest = np.rint(values)
    # The nearest integer is certain if the value is farther from the next half than its error.
    unsure = 0.5 - np.abs(values - nearest) <= slack
    open_pairs = np.flatnonzero(unsure.any(axis=0) | (first < _LEAST))
    out = np.empty((2, pairs), dtype=np.int64)
    # Values too large for an integer are among the open pairs: they are computed below.
    nearest[:, open_pairs] = 0.0
    out[:] = nearest
    for pair in open_pairs.tolist():
        out[:, pair] = refine(sigma, int(first[pair]), int(second[pair]), words(6))
    return out.reshape(-1)[:count]


def box_muller(
    first: npt.NDArray[np.uint64], second: npt.NDArray[np.uint64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Standard normal pairs, shape (2, pairs), and their radius, in double precision."""
    # 0 − … and not −…: the radius of U₁ = 1 is 0, not −0, whose inverse would be −∞.
    radius = np.sqrt(0.0 - 2.0 * np.log((first + 0.5) * 2.0**-64))
    angle = (second + 0.5) * (2.0**-64 * 2 * math.pi)
    values = np.empty((2, len(first)))
    np.multiply(radius, np.cos(angle), out=values[0])
    np.multiply(radius, np.sin(angle), out=values[1])
    return values, radius


def refine(sigma: float, first: int, second: int, more: npt.NDArray[np.uint64]) -> tuple[int, int]:
    """The two integers of a pair from 256 bits of each uniform, computed to 80 digits."""
    a, b, c, d, e, f = (int(word) for word in more)
    values = _exact_pair(
        (first << 192) | (a << 128) | (b << 64) | c, (second << 192) | (d << 128) | (e << 64) | f
    )
    with localcontext(_DIGITS):
        scale = Decimal(sigma)
        x, y = (int((scale * value).to_integral_value(ROUND_HALF_EVEN)) for value in values)
    return x, y


def _exact_pair(first: int, second: int) -> tuple[Decimal, Decimal]:
    """The Box–Muller pair of U₁ = (first + ½)/2²⁵⁶ and U₂ = (second + ½)/2²⁵⁶."""
    with localcontext(_DIGITS):
        whole = Decimal(2) ** 256
        half = Decimal("0.5")
        radius = (-2 * ((first + half) / whole).ln()).sqrt()
        angle = (second + half) / whole * _TURN
        cosine, sine, term, n = Decimal(0), Decimal(0), Decimal(1), 0
        while n < 8 or abs(term) > Decimal("1e-80"):
            if n % 2 == 0:
                cosine += term if n % 4 == 0 else -term
            else:
                sine += term if n % 4 == 1 else -term
            n += 1
            term = term * angle / n
        return radius * cosine, radius * sine
