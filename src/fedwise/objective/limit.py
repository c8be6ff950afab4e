"""Limit: what a federation may be at most or at least in a metric, and what is said where it is not kept."""

from __future__ import annotations

from typing import NamedTuple

from .metric import parse

#: Rounding allowed before a limit counts as missed.
SLACK = 1e-9


class Miss(NamedTuple):
    """A limit that is not kept. `known` says how the value is known: ``forecast`` or ``rehearsed``."""

    metric: str
    value: float
    limit: float
    known: str

    def __str__(self) -> str:
        side = "at least" if parse(self.metric).larger_is_better else "at most"
        return f"{self.metric} is {self.known} at {self.value:.4f}, the limit is {side} {self.limit:.4g}"
