"""Copies: pairs of releases that are closer than two independent noises allow.

Write A and B for two clients' released cells in units of their noise. If the two drew their noise independently,
then whatever their data are, the smallest eigenvalue of the 2 × 2 Gram matrix

    λ = min over angles of ‖A·cos θ − B·sin θ‖²

is stochastically no smaller than that of pure noise, a Wishart matrix with d degrees of freedom (Perlman and
Olkin 1980: tests increasing in the roots are unbiased). So a small λ is evidence against independent noise,
however similar the data are. Integrating the joint density of the two roots over the larger one gives

    P(λ ≤ t)  ≤  √π · Γ((d+1)/2) / Γ(d/2) · P(χ²_{d−1} ≤ t)

A release made from another as B = c·A + fresh noise of variance s² has λ ≈ d·s²/(1 + c²): 0 for a
copy, d/2 for a copy with full fresh noise, 0.6·d for half of A with just as much noise as the plan asks.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..deferred import Deferred

if TYPE_CHECKING:
    from scipy import special
else:
    special = Deferred("scipy.special")

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64] | npt.NDArray[np.float64]

#: Numbers looked at while searching: all cells of a small pool, a sample of the cells of a large one.
_NUMBERS = 8_000_000
#: Least number of cells in the sample.
_SAMPLE = 768
#: Clients compared with all others at a time.
_ROWS = 512


@dataclass(frozen=True)
class Twins:
    """Two clients whose noise is not independent.

    Parameters
    ----------
    first, second
        Positions of the clients, ``first < second``.
    p_value
        Bound on the chance that any pair of this pool is as close with independent noise.
    """

    first: int
    second: int
    p_value: float


def twins(matrix: Counts, scales: Floats, *, false_alarm: float, numbers: int = _NUMBERS) -> list[Twins]:
    """Each client's closest partner, where the two are too close for independent noise.

    Every pair is compared, on as many cells as `numbers` allows (at least 768); the closest
    partner of each client is then tested on all cells. So no more pairs are reported than there are clients.

    Parameters
    ----------
    matrix
        Shape (clients, cells): released counts.
    scales
        Shape (cells,), or (clients, cells) where clients differ: noise of each cell, above 0.
    false_alarm
        Chance that a pool of independent noises holds any such pair; shared over all pairs.
    numbers
        Most numbers of the matrix looked at while searching.
    """
    clients, cells = matrix.shape
    if clients < 2 or cells < 2:
        return []
    scales = np.broadcast_to(scales, matrix.shape)
    nearest = _nearest(matrix, scales, max(_SAMPLE, numbers // clients))
    pairs = sorted({(min(i, j), max(i, j)) for i, j in enumerate(nearest.tolist())})
    among = clients * (clients - 1) / 2
    found = []
    for first, second in pairs:
        least = least_root(matrix[first] / scales[first], matrix[second] / scales[second])
        p_value = min(1.0, among * independent(least, cells))
        if p_value < false_alarm:
            found.append(Twins(first, second, p_value))
    return found


def independent(least: float, cells: int) -> float:
    """Bound on the chance of a smallest root of at most `least` under independent noise."""
    log_factor = 0.5 * math.log(math.pi) + math.lgamma((cells + 1) / 2) - math.lgamma(cells / 2)
    return min(1.0, math.exp(log_factor) * float(special.chdtr(cells - 1, least)))


def least_root(a: Floats, b: Floats) -> float:
    """Smallest eigenvalue of the Gram matrix of two vectors, without loss of digits.

    Rotating the vectors themselves (one-sided Jacobi) keeps a small root exact beside a huge one.
    """
    for _ in range(3):
        p, q, g = float(a @ a), float(b @ b), float(a @ b)
        angle = 0.5 * math.atan2(2 * g, p - q)
        c, s = math.cos(angle), math.sin(angle)
        a, b = c * a + s * b, c * b - s * a
    return min(float(a @ a), float(b @ b))


def _nearest(matrix: Counts, scales: Floats, most: int) -> npt.NDArray[np.int64]:
    """For each client the partner with the smallest root, on at most `most` cells."""
    clients, cells = matrix.shape
    if cells > most:
        # Which cells depends on the whole pool: a copier cannot know them and change only those.
        digest = hashlib.sha256(matrix.sum(axis=0).tobytes()).digest()
        rng = np.random.default_rng(int.from_bytes(digest, "big"))
        chosen = np.sort(rng.choice(cells, most, replace=False))
        white = matrix[:, chosen] / scales[:, chosen]
    else:
        white = matrix / scales
    norms = np.einsum("ij,ij->i", white, white)
    best = np.full(clients, np.inf)
    partner = (np.arange(clients) + 1) % clients
    for rows in _blocks(clients):
        rest = slice(rows.start, clients)
        gram = white[rows] @ white[rest].T
        roots = _roots(norms[rows, None], norms[None, rest], gram)
        here = np.arange(rows.stop - rows.start)
        roots[here, here] = np.inf
        for axis, at in ((1, rows), (0, rest)):
            least = roots.min(axis=axis)
            who = roots.argmin(axis=axis) + rows.start
            closer = least < best[at]
            best[at] = np.where(closer, least, best[at])
            partner[at] = np.where(closer, who, partner[at])
    return np.asarray(partner, dtype=np.int64)


def _roots(p: Floats, q: Floats, gram: Floats) -> Floats:
    """Smaller root of [[p, g], [g, q]], elementwise; overwrites `gram`."""
    np.multiply(gram, gram, out=gram)
    gram *= 4
    gram += (p - q) ** 2
    np.sqrt(gram, out=gram)
    np.subtract(p + q, gram, out=gram)
    return gram


def _blocks(clients: int) -> Iterator[slice]:
    for start in range(0, clients, _ROWS):
        yield slice(start, min(start + _ROWS, clients))
