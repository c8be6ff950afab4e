"""Residuals: what is left of released counts when the true ones are taken away, and whether it is the planned noise.

Each check gives one p-value for all tables and cells together (Bonferroni) and the place that stands out. Tables
with σ below `COARSE` are left out: their noise is nearly always 0, and these tests take it for nearly normal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.stats import chi2, gamma, norm, t

from ..planning import Plan
from ..privacy.accounting import discrete_gaussian

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

COARSE = 0.8
#: Cells whose correlations are looked at; of more, as many are drawn.
MOST_CELLS = 3000
#: Draws that a class of the χ² test expects at least.
_EXPECTED = 40.0
#: Below as many bits of noise two honest releases in a few hundred might be the same.
_TELLING_BITS = 45


@dataclass(frozen=True)
class Found:
    """The least p-value of a check, what it is about, and where."""

    p_value: float
    says: str


@dataclass(frozen=True)
class Residuals:
    """Noise as it was seen in releases.

    Parameters
    ----------
    noise
        Released minus true counts, shape (releases, cells).
    present
        Which canaries were in the data, shape (canaries, releases).
    """

    plan: Plan
    noise: Ints
    present: npt.NDArray[np.bool_]

    @cached_property
    def tables(self) -> list[int]:
        """Tables with enough noise to be examined."""
        return [j for j, sigma in enumerate(self.plan.sigmas.tolist()) if sigma >= COARSE]

    @cached_property
    def _laws(self) -> dict[int, tuple[float, float]]:
        """Second and fourth moment of the noise of each table."""
        known: dict[float, tuple[float, float]] = {}
        for sigma in {float(self.plan.sigmas[j]) for j in self.tables}:
            support, p = discrete_gaussian(sigma)
            squares = support.astype(np.float64) ** 2
            known[sigma] = float(p @ squares), float(p @ squares**2)
        return {j: known[float(self.plan.sigmas[j])] for j in self.tables}

    @cached_property
    def _standard(self) -> npt.NDArray[np.float32]:
        """Noise of the examined tables in units of its standard deviation, shape (releases, cells)."""
        parts = [self._table(j) / math.sqrt(self._laws[j][0]) for j in self.tables]
        return np.concatenate(parts, axis=1).astype(np.float32)

    def _table(self, j: int) -> Ints:
        return self.noise[:, self.plan.layout.slice(j)]

    def name(self, j: int) -> str:
        """The pair of a table in words."""
        return " × ".join(self.plan.tables[j].pair)

    def least_variance(self) -> float:
        """Least variance over tables, relative to the plan's; 1 where no table is examined."""
        return min(
            (float((self._table(j) ** 2.0).mean()) / self._laws[j][0] for j in self.tables), default=1.0
        )

    def too_little(self) -> Found:
        """Whether a table, a single cell or the total of a table carries less noise than planned."""
        best = (1.0, "")
        for j in self.tables:
            noise, (second, fourth) = self._table(j).astype(np.float64), self._laws[j]
            cells = noise.shape[1]
            total_fourth = 3 * (cells * second) ** 2 + cells * (fourth - 3 * second**2)
            tests = (
                (_low_squares(noise.reshape(-1, 1), second, fourth), "in all cells"),
                (_low_squares(noise, second, fourth), "in one cell"),
                (
                    _low_squares(noise.sum(axis=1, keepdims=True), cells * second, total_fourth),
                    "in the total",
                ),
            )
            best = min(best, *((3 * p, f"{where} of {self.name(j)}") for p, where in tests))
        return Found(
            min(1.0, best[0] * len(self.tables)), f"the noise is smaller than planned {best[1]}".strip()
        )

    def shifts(self) -> Found:
        """Whether counts are off on average, for everybody or when a canary is there."""
        z = self._standard.mean(axis=0) * math.sqrt(len(self.noise))
        contrasts = [np.asarray(z, dtype=np.float64)]
        for present in self.present:
            apart = self._standard[present].mean(axis=0) - self._standard[~present].mean(axis=0)
            contrasts.append(apart / math.sqrt(1 / present.sum() + 1 / (~present).sum()))
        most = np.abs(np.stack(contrasts))
        cell = int(np.argmax(most.max(axis=0)))
        p = 2 * float(norm.sf(most.max())) * most.size
        return Found(min(1.0, p), f"counts are off on average in a cell of {self._owner(cell)}")

    def shape(self) -> Found:
        """Whether the noise follows the discrete Gaussian: cut, rounded or clipped noise does not."""
        best = (1.0, "")
        for j in self.tables:
            best = min(best, (chi_square(self._table(j).ravel(), float(self.plan.sigmas[j])), self.name(j)))
        return Found(
            min(1.0, best[0] * len(self.tables)), f"the noise of {best[1]} is not the discrete Gaussian"
        )

    def dependence(self, rng: np.random.Generator) -> Found:
        """Whether two releases, or two cells of any tables, share noise."""
        lines = self._standard
        if lines.shape[1] > MOST_CELLS:
            lines = lines[:, np.sort(rng.choice(lines.shape[1], MOST_CELLS, replace=False))]
        releases = _largest(lines) if self._tellable() else 1.0
        return min(
            Found(min(1.0, 2 * releases), "two releases share noise"),
            Found(min(1.0, 2 * _largest(lines.T)), "two cells of a release share noise"),
            key=lambda found: found.p_value,
        )

    def _tellable(self) -> bool:
        """Whether a release has so much noise that two never look alike by chance: σ√(4π) outcomes a cell."""
        cells = np.diff(self.plan.layout.offsets)
        bits = sum(
            cells[j] * math.log(self.plan.sigmas[j] * math.sqrt(4 * math.pi)) for j in self.tables
        ) / math.log(2)
        return bool(bits > _TELLING_BITS)

    def _owner(self, cell: int) -> str:
        for j in self.tables:
            cell -= self._table(j).shape[1]
            if cell < 0:
                return self.name(j)
        raise IndexError(cell)


def _low_squares(noise: Floats, second: float, fourth: float) -> float:
    """Least p-value over columns of a sum of squares as small as seen; sums are taken for gamma variables."""
    mean, variance = len(noise) * second, len(noise) * (fourth - second**2)
    p = gamma.cdf((noise**2).sum(axis=0), mean**2 / variance, scale=variance / mean)
    return float(p.min() * noise.shape[1])


def chi_square(draws: Ints, sigma: float) -> float:
    """p-value of integer draws against the discrete Gaussian, neighbouring outcomes pooled."""
    support, p = discrete_gaussian(sigma)
    edge = int(support[-1])
    expected = len(draws) * p
    # Classes in order of the outcome; a new one begins whenever another `_EXPECTED` draws are expected.
    classes = np.minimum(
        (np.cumsum(expected) - expected / 2) // _EXPECTED, max(len(draws) // _EXPECTED - 1, 0)
    ).astype(np.int64)
    seen = np.bincount(np.clip(draws, -edge, edge) + edge, minlength=len(support))
    e, s = np.bincount(classes, expected), np.bincount(classes, seen)
    # A class that outcomes of large mass stepped over joins the one before it.
    joined = np.maximum(np.cumsum(e > _EXPECTED / 2) - 1, 0)
    e, s = np.bincount(joined, e), np.bincount(joined, s)
    return float(chi2.sf(float(((s - e) ** 2 / e).sum()), len(e) - 1)) if len(e) > 1 else 1.0


def _largest(lines: npt.NDArray[np.float32]) -> float:
    """p-value of the largest correlation of any two lines, means known to be 0."""
    count, length = lines.shape
    if count < 2:
        return 1.0
    unit = lines / np.maximum(np.linalg.norm(lines, axis=1, keepdims=True), 1e-12)
    most = 0.0
    for start in range(0, count, 500):
        block = np.abs(unit[start : start + 500] @ unit.T)
        block[np.arange(len(block)), start + np.arange(len(block))] = 0.0
        most = max(most, float(block.max()))
    r = min(most, 1 - 1e-7)  # single precision
    tail: float = t.sf(r * math.sqrt((length - 1) / (1 - r * r)), length - 1)
    return float(min(1.0, count * (count - 1) * tail))
