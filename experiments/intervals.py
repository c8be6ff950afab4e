"""Intervals by bootstrap: over splits, draws of the noise, random federations and clients."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata, t

Floats = npt.NDArray[np.float64]
REPLICATES = 1000


@dataclass(frozen=True)
class Interval:
    """A difference and its 95% interval; NaN bounds where nothing was repeated."""

    value: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """Zero lies outside."""
        return self.low > 0 or self.high < 0

    def text(self, digits: int = 3) -> str:
        """Value and bounds, short enough for a cell."""
        if math.isnan(self.low):
            return f"{self.value:+.{digits}f}"
        return f"{self.value:+.{digits}f} ({self.low:+.{digits}f} to {self.high:+.{digits}f})"


def gap(
    chosen: Floats,
    other: Floats,
    *,
    members: npt.NDArray[np.bool_] | None = None,
    replicates: int = REPLICATES,
    seed: int = 0,
) -> Interval:
    """Mean of the chosen minus mean of the others, paired by split, with a bootstrap interval.

    Splits, draws and federations are resampled independently of one another, one fewer than there are, which makes
    the variance of a mean unbiased at small numbers (Rao and Wu). With `members`, clients are resampled in place of
    federations: each gets a weight of mean one, and the weight of a federation changes by the sum over its
    members, so that federations with common clients move together. The interval is the value ± Student's quantile
    times the bootstrap's standard deviation, with degrees of freedom by Satterthwaite: the part of the variance that
    comes from splits has as many as there are splits, less one.

    Parameters
    ----------
    chosen
        Shape (splits, draws).
    other
        Shape (splits, federations); one column for a model of all clients.
    members
        Shape (federations, clients).
    """
    splits, draws = chosen.shape
    federations = other.shape[1]
    if other.shape[0] != splits:
        raise ValueError(f"other must have {splits} splits, got {other.shape[0]}")
    value = float(chosen.mean() - other.mean())
    clients = None if members is None else members.shape[1]
    by_split, by_draw, by_other = _weights(seed, replicates, splits, draws, federations, clients)
    of_chosen = (by_split @ chosen * by_draw).sum(axis=1)
    if members is None:
        of_other = (by_split @ other * by_other).sum(axis=1)
    else:
        moves = by_other
        of_other = by_split @ other.mean(axis=1)
        # To first order in the weights: the weights themselves may sum to nearly nothing.
        centred = other - other.mean(axis=1, keepdims=True)
        of_other += (by_split @ centred * (moves @ members.T.astype(np.float64))).sum(axis=1) / federations
    whole = float(np.var(of_chosen - of_other, ddof=1))
    by_split_alone = (
        float(np.var(chosen.mean(axis=1) - other.mean(axis=1), ddof=1)) / splits if splits > 1 else 0.0
    )
    units = max(draws, federations) if members is None else max(draws, members.shape[1])
    freedom = _freedom(whole, by_split_alone, splits - 1, units - 1)
    if freedom < 1:
        return Interval(value, math.nan, math.nan)
    reach = float(t.ppf(0.975, freedom)) * math.sqrt(whole)
    return Interval(value, value - reach, value + reach)


@lru_cache(maxsize=64)
def _weights(
    seed: int, replicates: int, splits: int, draws: int, federations: int, clients: int | None
) -> tuple[Floats, Floats, Floats]:
    """Weights of splits, draws, and federations or clients in every replicate; the arguments decide them."""
    rng = np.random.default_rng(seed)
    by_split, by_draw = _counts(rng, replicates, splits), _counts(rng, replicates, draws)
    if clients is None:
        return by_split, by_draw, _counts(rng, replicates, federations)
    return by_split, by_draw, rng.exponential(size=(replicates, clients)) - 1


def _freedom(whole: float, split: float, few: int, many: int) -> float:
    """Degrees of freedom of a variance with a part that rests on few splits (Satterthwaite)."""
    if few < 1:
        return float(many)
    rest = max(whole - split, 0.0)
    below = split**2 / few + (rest**2 / many if many > 0 else 0.0)
    return (split + rest) ** 2 / below if below > 0 else float(few)


def _counts(rng: np.random.Generator, replicates: int, size: int) -> Floats:
    """Weights of a bootstrap of `size` units that draws one fewer; all weight on a single unit."""
    if size == 1:
        return np.ones((replicates, 1))
    return rng.multinomial(size - 1, np.full(size, 1 / size), size=replicates) / (size - 1)


def correlation(first: Floats, second: Floats, *, seed: int = 0) -> Interval:
    """Spearman's correlation over federations with a percentile interval of the bootstrap."""
    value = spearman(first, second)
    rng = np.random.default_rng(seed)
    drawn = [
        spearman(first[at], second[at]) for at in rng.integers(len(first), size=(REPLICATES, len(first)))
    ]
    low, high = np.nanquantile(drawn, [0.025, 0.975])
    return Interval(value, float(low), float(high))


def spearman(first: Floats, second: Floats) -> float:
    """Spearman's correlation, mean ranks for ties; NaN for a constant side."""
    a, b = rankdata(first), rankdata(second)
    a, b = a - a.mean(), b - b.mean()
    size = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / size if size else math.nan


def correlation_p(value: float, *, clients: int, federations: int) -> float:
    """Two-sided p-value of a rank correlation over random federations drawn from so many clients.

    Federations with common clients are not independent: loss and metrics are nearly sums over members, so many
    federations hold about as much evidence as there are clients. The variances 1/clients and 1/federations add up;
    Student's t for the sample size that has their sum. `experiments/null.py` shows the false alarms.
    """
    if abs(value) >= 1:
        return 0.0
    size = clients * federations / (clients + federations)
    score = abs(value) * math.sqrt((size - 2) / (1 - value * value))
    return float(2 * t.sf(score, size - 2))
