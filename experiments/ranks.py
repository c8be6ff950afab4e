"""Rank tests: where a chosen federation stands among random ones, and how sure that is.

Under the null hypothesis the chosen federation is one more random federation, so its rank among the n random
ones is uniform on n + 1 places, whatever the metric's distribution. Nothing is assumed about shape or spread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
#: Metrics where more is better; of the others less is.
LARGER = frozenset({"accuracy", "balanced_accuracy", "f1", "auc"})
#: The error that a claim may make under the null, over all of its comparisons.
LEVEL = 0.05


def base(metric: str) -> str:
    """A metric without its attribute and threshold: ``eod:SEX@rate`` is ``eod``."""
    return metric.partition("@")[0].partition(":")[0]


def larger(metric: str) -> bool:
    """Whether more of a metric is better."""
    return base(metric) in LARGER


@dataclass(frozen=True)
class Rank:
    """Place of one value among n random ones: how many are as good or better, as bad or worse."""

    as_good: int
    as_bad: int
    n: int

    @property
    def p_better(self) -> float:
        """Chance under the null of standing as high: (1 + as good or better)/(1 + n). Ties count against."""
        return (1 + self.as_good) / (1 + self.n)

    @property
    def p_worse(self) -> float:
        """Chance under the null of standing as low."""
        return (1 + self.as_bad) / (1 + self.n)

    @property
    def p(self) -> float:
        """Two-sided: twice the smaller of the two."""
        return min(1.0, 2 * min(self.p_better, self.p_worse))

    @property
    def good(self) -> bool:
        """The side: better than the middle of the random ones."""
        return self.p_better < self.p_worse

    @property
    def standing(self) -> float:
        """Share of random federations that are beaten, ties counted half."""
        ties = self.as_good + self.as_bad - self.n
        return (self.n - self.as_good + ties / 2) / self.n


def rank(value: float, population: Floats, metric: str) -> Rank:
    """The place of `value` among the population, by the direction of the metric."""
    sign = 1.0 if larger(metric) else -1.0
    found, others = sign * value, sign * np.asarray(population, dtype=np.float64)
    if not len(others) or np.isnan(found) or np.isnan(others).any():
        raise ValueError(f"a rank needs numbers on both sides, got {value} among {len(others)} values")
    return Rank(int((others >= found).sum()), int((others <= found).sum()), len(others))


@dataclass(frozen=True)
class Pooled:
    """Ranks over several tasks together: for few random federations a task, where no single rank can be rare."""

    p_better: float
    p_worse: float
    standing: float

    @property
    def p(self) -> float:
        """Two-sided."""
        return min(1.0, 2 * min(self.p_better, self.p_worse))

    @property
    def good(self) -> bool:
        """The side."""
        return self.p_better < self.p_worse


def pool(ranks: Sequence[Rank]) -> Pooled:
    """The sum of the places over tasks against its exact distribution, a sum of uniform places.

    Ties are placed last for the test of better and again for the test of worse, so that both are conservative.
    """
    if not ranks:
        raise ValueError("ranks must hold at least one rank, got none")
    chance = np.ones(1)
    for one in ranks:
        chance = np.convolve(chance, np.full(one.n + 1, 1 / (one.n + 1)))
    below = np.cumsum(chance)
    better = float(below[sum(one.as_good for one in ranks)])
    worse = float(below[sum(one.as_bad for one in ranks)])
    return Pooled(min(1.0, better), min(1.0, worse), float(np.mean([one.standing for one in ranks])))


def holm(p_values: Sequence[float] | Floats) -> Floats:
    """Holm's adjusted p-values, along the last axis; valid under any dependence."""
    p = np.asarray(p_values, dtype=np.float64)
    if not p.size:
        return p
    order = np.argsort(p, axis=-1, kind="stable")
    count = p.shape[-1]
    stepped = np.take_along_axis(p, order, axis=-1) * np.arange(count, 0, -1)
    stepped = np.minimum(np.maximum.accumulate(stepped, axis=-1), 1.0)
    out = np.empty_like(p)
    np.put_along_axis(out, order, stepped, axis=-1)
    return out


def least(comparisons: int, n: int) -> float:
    """The smallest adjusted p-value that n random federations can give to one of a claim's comparisons."""
    return min(1.0, comparisons * 2 / (1 + n))
