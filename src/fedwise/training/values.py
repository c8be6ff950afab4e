"""Values: one number of a table of metrics, and the weights of bootstrap samples of rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

#: Numbers held at a time: 4 million float64 are 32 MB.
_BLOCK = 4_000_000


class Value(NamedTuple):
    """One number of a table of metrics; `low` and `high` bound it at 95% where a bootstrap ran."""

    metric: str
    attribute: str
    value: float
    low: float = math.nan
    high: float = math.nan


def weighted_draws(rows: int, replicates: int, rng: np.random.Generator) -> Iterator[npt.NDArray[np.float64]]:
    """How often each row is in each bootstrap sample, shape (some replicates, rows), in blocks."""
    step = max(1, _BLOCK // max(rows, 1))
    for first in range(0, replicates, step):
        count = min(step, replicates - first)
        drawn = rng.integers(rows, size=(count, rows))
        yield np.stack([np.bincount(line, minlength=rows) for line in drawn]).astype(np.float64)


def bounded(values: list[Value], draws: dict[tuple[str, str], npt.NDArray[np.float64]]) -> list[Value]:
    """Values with the 95% interval of their replicates, where there are any."""
    out = []
    for v in values:
        drawn = draws.get((v.metric, v.attribute), np.zeros(0))
        known = drawn[~np.isnan(drawn)]
        if math.isnan(v.value) or len(known) == 0:
            out.append(v)
        else:
            low, high = np.quantile(known, [0.025, 0.975])
            out.append(v._replace(low=float(low), high=float(high)))
    return out
