"""Dirty contrasts: one way to train against another on the same cells, with an interval over seeds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import polars as pl
from dirty_training import ROBUST
from intervals import Interval
from scipy import stats

CHOSEN = "chosen, quality"


@dataclass(frozen=True)
class Contrast:
    """A difference, whether larger is better, and which way it is against."""

    interval: Interval
    larger: bool
    other: str

    @property
    def won(self) -> bool:
        """Clearly better."""
        return self.interval.clear and (self.interval.value > 0) == self.larger

    @property
    def lost(self) -> bool:
        """Clearly worse."""
        return self.interval.clear and not self.won

    @property
    def verdict(self) -> str:
        """Win, loss or tie."""
        return "win" if self.won else "loss" if self.lost else "tie"


def robust_best(trained: pl.DataFrame, column: str, *, larger: bool) -> tuple[str, float]:
    """The robust rule over all clients with the best mean, picked with hindsight."""
    found = {}
    for rule in ROBUST:
        value = trained.filter(pl.col("way") == f"all, {rule}")[column].mean()
        if value is not None:
            found[rule] = float(value)  # type: ignore[arg-type]
    if not found:
        return "–", math.nan
    best = max(found, key=lambda rule: found[rule] if larger else -found[rule])
    return best, found[best]


def contrast(trained: pl.DataFrame, task: str, other: str, column: str, *, larger: bool) -> Contrast:
    """Chosen with suspects excluded minus another way on one task; ``robust`` is the best rule there."""
    here = trained.filter(pl.col("task") == task)
    if other == "robust":
        other = f"all, {robust_best(here, column, larger=larger)[0]}"
    return Contrast(paired(here, CHOSEN, other, column), larger, other)


def paired(trained: pl.DataFrame, one: str, other: str, column: str) -> Interval:
    """Mean difference over cells, and its 95% interval by Student over the means of the seeds."""
    keys = ["task", "kind", "severity", "share", "epsilon", "seed"]
    left, right = (
        trained.filter(pl.col("way") == way).group_by(keys).agg(pl.col(column).mean()) for way in (one, other)
    )
    both = left.join(right, on=keys, suffix="_other")
    by_seed = (
        both.group_by("seed").agg((pl.col(column) - pl.col(f"{column}_other")).mean())[column].to_numpy()
    )
    if len(by_seed) < 2:
        return Interval(float(np.mean(by_seed)) if len(by_seed) else math.nan, math.nan, math.nan)
    half = float(stats.t.ppf(0.975, len(by_seed) - 1)) * float(np.std(by_seed, ddof=1)) / len(by_seed) ** 0.5
    middle = float(np.mean(by_seed))
    return Interval(middle, middle - half, middle + half)
