"""Contrasts in the runs of version 0.1.0: groups of trainings, Welch's interval, ranks among random federations.

Welch's interval asks whether one federation differs from the *average* random one, which nearly all do; it is kept
because `experiments/null.py` measures how often it misleads. Verdicts use ranks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
from ranks import Rank, larger, rank
from scipy.stats import t

Floats = npt.NDArray[np.float64]
SHOWN = {"accuracy": "accuracy", "f1": "F1", "eod": "EOD by sex", "spd": "SPD by sex"}


@dataclass(frozen=True)
class Difference:
    """Mean of one group minus the mean of another, with a 95% Welch interval."""

    value: float
    low: float
    high: float
    first: int
    second: int

    def verdict(self, metric: str) -> str:
        """``better``, ``worse`` or ``no clear difference`` for the first group."""
        if math.isnan(self.low) or self.low <= 0 <= self.high:
            return "no clear difference"
        return "better" if (self.value > 0) == larger(metric) else "worse"

    @property
    def interval(self) -> str:
        """The interval as text; a dash where there is none."""
        return "–" if math.isnan(self.low) else f"{self.low:+.4f} to {self.high:+.4f}"


def difference(first: Floats, second: Floats) -> Difference:
    """Welch's interval for the difference of means; NaN bounds where a side has fewer than two values.

    The random side varies over federations and seeds, the chosen side over seeds only: the interval asks
    whether this federation differs from the *average* random one.
    """
    first, second = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    gap = float(first.mean() - second.mean())
    if len(first) < 2 or len(second) < 2:
        return Difference(gap, math.nan, math.nan, len(first), len(second))
    a, b = first.var(ddof=1) / len(first), second.var(ddof=1) / len(second)
    if a + b == 0:
        return Difference(gap, gap, gap, len(first), len(second))
    freedom = (a + b) ** 2 / (a**2 / (len(first) - 1) + b**2 / (len(second) - 1))
    reach = float(t.ppf(0.975, freedom)) * math.sqrt(a + b)
    return Difference(gap, gap - reach, gap + reach, len(first), len(second))


def pick(
    runs: pl.DataFrame,
    metric: str,
    *,
    task: str,
    k: int,
    group: str,
    strategy: str = "fedavg",
    sampler: str = "full",
) -> Floats:
    """Final values of a metric over the trainings of one group."""
    found = runs.filter(
        (pl.col("task") == task) & (pl.col("k") == k) & (pl.col("group") == group)
        & (pl.col("strategy") == strategy) & (pl.col("sampler") == sampler)
    )  # fmt: skip
    return found.get_column(metric).to_numpy().astype(np.float64)


def place(runs: pl.DataFrame, metric: str, *, task: str, k: int, group: str, **rival: str) -> Rank | None:
    """The mean over seeds of one federation, ranked among random ones, which may be trained by another method."""
    chosen = pick(runs, metric, task=task, k=k, group=group)
    random = pick(runs, metric, task=task, k=k, group="random", **rival)
    return rank(float(chosen.mean()), random, metric) if len(chosen) and len(random) else None


def rounds_to(curves: pl.DataFrame, *, metric: str, target: float) -> pl.DataFrame:
    """First tested round at which each training reaches the target; null where it never does."""
    keys = ["task", "k", "group", "label", "strategy", "sampler", "seed"]
    return curves.group_by(keys, maintain_order=True).agg(
        pl.col("round").filter(pl.col(metric) >= target).min().alias("reached"),
    )
