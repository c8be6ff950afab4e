"""Strategies: how updates are aggregated. One file each."""

from __future__ import annotations

import dataclasses
from typing import Any

from ...errors import FedwiseError, nearest
from .fairfed import FairFed
from .fedadam import FedAdam
from .fedavg import FedAvg
from .fedfb import FedFB
from .fedprox import FedProx
from .scaffold import Scaffold
from .strategy import ServerState, Strategy

#: Every strategy by its name.
STRATEGIES: dict[str, Any] = {
    kind.name: kind for kind in (FedAvg, FedProx, Scaffold, FedAdam, FairFed, FedFB)
}

__all__ = [
    "STRATEGIES",
    "FairFed",
    "FedAdam",
    "FedAvg",
    "FedFB",
    "FedProx",
    "Scaffold",
    "ServerState",
    "Strategy",
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
