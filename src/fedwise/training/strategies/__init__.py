"""Strategies: how updates are aggregated. One file each."""

from __future__ import annotations

import dataclasses
from typing import Any

from ...errors import FedwiseError, nearest
from .coordinate_median import CoordinateMedian
from .fade import FadeSubset, FadeWeights
from .fairfed import FairFed
from .fedadam import FedAdam
from .fedavg import FedAvg
from .fedfb import FedFB
from .fedprox import FedProx
from .fltrust import FLTrust
from .krum import Krum, MultiKrum
from .scaffold import Scaffold
from .strategy import ServerState, Strategy
from .trimmed_mean import TrimmedMean

#: Every strategy by its name.
STRATEGIES: dict[str, Any] = {
    kind.name: kind
    for kind in (
        FedAvg, FedProx, Scaffold, FedAdam, FairFed, FedFB, FadeWeights, FadeSubset, CoordinateMedian, TrimmedMean,
        Krum, MultiKrum, FLTrust,
    )
}  # fmt: skip
#: Those that ask every participant for exact sums by group.
REPORTING = frozenset({"fairfed", "fedfb", "fade_weights", "fade_subset"})

__all__ = [
    "REPORTING",
    "STRATEGIES",
    "CoordinateMedian",
    "FLTrust",
    "FadeSubset",
    "FadeWeights",
    "FairFed",
    "FedAdam",
    "FedAvg",
    "FedFB",
    "FedProx",
    "Krum",
    "MultiKrum",
    "Scaffold",
    "ServerState",
    "Strategy",
    "TrimmedMean",
    "make_strategy",
]


def make_strategy(name: str, **options: Any) -> Strategy:
    """The strategy called `name`, with its options; the error names the nearest valid one."""
    if name not in STRATEGIES:
        raise FedwiseError(
            f"strategy must be one of {', '.join(STRATEGIES)}, got '{name}'{nearest(name, STRATEGIES)}"
        )
    kind = STRATEGIES[name]
    known = {field.name for field in dataclasses.fields(kind)}
    for option in options:
        if option not in known:
            raise FedwiseError(f"strategy {name} has no option '{option}'{nearest(option, known)}")
    made: Strategy = kind(**options)
    return made
