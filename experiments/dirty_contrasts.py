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


def contrast_by_kind(trained: pl.DataFrame, kind: str, other: str, column: str, *, larger: bool) -> Contrast:
    """The same for one kind of spoilt records over all tasks; tasks and seeds are the units."""
    here = trained.filter(pl.col("kind") == kind)
    if other == "robust":
        other = f"all, {robust_best(here, column, larger=larger)[0]}"
    return Contrast(paired(here, CHOSEN, other, column, units=("task", "seed")), larger, other)


def contrast(trained: pl.DataFrame, task: str, other: str, column: str, *, larger: bool) -> Contrast:
    """Chosen with suspects excluded minus another way on one task; ``robust`` is the best rule there."""
    here = trained.filter(pl.col("task") == task)
    if other == "robust":
        other = f"all, {robust_best(here, column, larger=larger)[0]}"
    return Contrast(paired(here, CHOSEN, other, column), larger, other)


def paired(
    trained: pl.DataFrame, one: str, other: str, column: str, *, units: tuple[str, ...] = ("seed",)
) -> Interval:
    """Mean difference over cells, and its 95% interval by Student over the means of the units."""
    keys = ["task", "kind", "severity", "share", "epsilon", "seed"]
    left, right = (
        trained.filter(pl.col("way") == way).group_by(keys).agg(pl.col(column).mean()) for way in (one, other)
    )
    both = left.join(right, on=keys, suffix="_other")
    by_unit = (
        both.group_by(*units).agg((pl.col(column) - pl.col(f"{column}_other")).mean())[column].to_numpy()
    )
    if len(by_unit) < 2:
        return Interval(float(np.mean(by_unit)) if len(by_unit) else math.nan, math.nan, math.nan)
    half = float(stats.t.ppf(0.975, len(by_unit) - 1)) * float(np.std(by_unit, ddof=1)) / len(by_unit) ** 0.5
    middle = float(np.mean(by_unit))
    return Interval(middle, middle - half, middle + half)
