"""Goal: what a rehearsed training is wanted for: metrics to maximise, and limits that others must keep."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..errors import FedwiseError
from ..objective.limit import SLACK
from ..objective.metric import parse
from .performance import Performance

#: A limit that is no number: no worse than random federations of the sizes asked are on average.
RANDOM: Literal["random"] = "random"
#: Loss for each unit by which a limit is missed, for each unit of weight.
PENALTY = 10.0

Floats = npt.NDArray[np.float64]
Bound = float | Literal["random"]


@dataclass(frozen=True)
class Goal:
    """Weights of metrics, and limits.

        loss = −Σ_m weight_m · metric_m + penalty · Σ_limits max(0, miss + margin)

    Parameters
    ----------
    weights
        By metric; what is maximised.
    limits
        By metric: most for gaps and losses, least for the others; or ``random``.
    """

    weights: Mapping[str, float]
    limits: Mapping[str, Bound]

    @classmethod
    def of(cls, maximise: str | Mapping[str, float], subject_to: Mapping[str, Bound] | None = None) -> Goal:
        """A goal from a metric's name, or weights by name; a gap or a loss is made small."""
        if isinstance(maximise, str):
            sign = 1.0 if parse(maximise, what="maximise").larger_is_better else -1.0
            weights = {maximise: sign}
        else:
            weights = {name: float(weight) for name, weight in maximise.items()}
        for name, weight in weights.items():
            parse(name, what="maximise")
            if not math.isfinite(weight):
                raise FedwiseError(f"weight of {name} must be a finite number, got {weight}")
        if not any(weights.values()):
            raise FedwiseError("maximise must give at least one metric a weight other than 0")
        limits = dict(subject_to or {})
        for name, limit in limits.items():
            low, high = parse(name, what="subject_to").bounds
            if isinstance(limit, str):
                if limit != RANDOM:
                    raise FedwiseError(f"limit of {name} must be a number or 'random', got '{limit}'")
            elif not low <= limit <= high:
                raise FedwiseError(f"limit of {name} must lie between {low:g} and {high:g}, got {limit}")
        return cls(weights, limits)

    def named(self, sample: Performance) -> Goal:
        """The goal in the full names of a rehearsal: ``eod`` becomes ``eod:SEX`` where SEX is the first attribute."""
        return Goal(
            {sample.known(name): weight for name, weight in self.weights.items()},
            {sample.known(name): limit for name, limit in self.limits.items()},
        )

    @property
    def metrics(self) -> tuple[str, ...]:
        """All metrics it looks at."""
        return tuple(dict.fromkeys([*self.weights, *self.limits]))

    @property
    def penalty(self) -> float:
        """Loss for each unit by which a limit is missed."""
        return PENALTY * sum(abs(weight) for weight in self.weights.values())

    def value(self, values: Mapping[str, float]) -> float:
        """What is maximised."""
        return sum(weight * values[name] for name, weight in self.weights.items())

    def misses(
        self, values: Mapping[str, float], bounds: Mapping[str, float], margins: Mapping[str, float]
    ) -> dict[str, float]:
        """By how much each limit, tightened by its margin, is missed: 0 where it is kept, infinite if nobody knows."""
        found = {}
        for name, bound in bounds.items():
            excess = _sign(name) * (values[name] - bound) + margins.get(name, 0.0)
            found[name] = math.inf if math.isnan(excess) else excess if excess > SLACK else 0.0
        return found

    def loss(
        self, values: Mapping[str, float], bounds: Mapping[str, float], margins: Mapping[str, float], *,
        unit: float = 1.0,
    ) -> float:  # fmt: skip
        """Lower is better; infinite where a metric is not known. `unit` is the size of what is maximised."""
        tight = {name: bound - _sign(name) * margins.get(name, 0.0) for name, bound in bounds.items()}
        return float(
            self.losses({name: np.asarray(value) for name, value in values.items()}, tight, unit=unit)
        )

    def losses(self, values: Mapping[str, Floats], bounds: Mapping[str, float], *, unit: float) -> Floats:
        """The same of many federations at once, under limits that are tightened already."""
        found = -np.asarray(sum(weight * values[name] for name, weight in self.weights.items()))
        for name, bound in bounds.items():
            excess = _sign(name) * (values[name] - bound)
            found = found + self.penalty * unit * np.where(excess <= SLACK, 0.0, excess)
        return np.asarray(np.where(np.isfinite(found), found, np.inf))

    def __str__(self) -> str:
        aims = [
            name if abs(weight) == 1.0 else f"{abs(weight):g} {name}" for name, weight in self.weights.items()
        ]
        signs = [("" if i == 0 else " + ") if w > 0 else " − " for i, w in enumerate(self.weights.values())]
        text = "".join(sign + aim for sign, aim in zip(signs, aims, strict=True)).strip()
        limits = [
            f"{name} {'≥' if parse(name).larger_is_better else '≤'} {limit}"
            for name, limit in self.limits.items()
        ]
        return text + (f", {', '.join(limits)}" if limits else "")


def _sign(metric: str) -> float:
    """1 where less of a metric is better, −1 where more is."""
    return -1.0 if parse(metric).larger_is_better else 1.0
