"""Samplers: who takes part in a round. One file each."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...errors import FedwiseError, nearest
from .cluster_fl import ClusterFl
from .fed_sampling import FedSampling
from .full import Full
from .power_of_choice import PowerOfChoice
from .sampler import Sampler, SamplerState
from .threshold import Threshold
from .ucb_cs import UcbCs
from .uniform import Uniform

#: Every sampler by its name.
SAMPLERS: dict[str, type[Sampler]] = {
    kind.name: kind for kind in (Full, Uniform, UcbCs, Threshold, FedSampling, PowerOfChoice, ClusterFl)
}

__all__ = [
    "SAMPLERS",
    "ClusterFl",
    "FedSampling",
    "Full",
    "PowerOfChoice",
    "Sampler",
    "SamplerState",
    "Threshold",
    "UcbCs",
    "Uniform",
    "find_sampler",
    "make_sampler",
]


def find_sampler(name: str, options: Iterable[str] = ()) -> type[Sampler]:
    """The sampler called `name`, if it takes `options`; the error names the nearest valid word."""
    if name not in SAMPLERS:
        raise FedwiseError(
            f"sampler must be one of {', '.join(SAMPLERS)}, got '{name}'{nearest(name, SAMPLERS)}"
        )
    kind = SAMPLERS[name]
    shared = {"self", "clients", "sizes", "fraction"}
    known = [key for key in inspect.signature(kind.__init__).parameters if key not in shared]
    for option in options:
        if option not in known:
            raise FedwiseError(f"sampler {name} has no option '{option}'{nearest(option, known)}")
    return kind


def make_sampler(
    name: str,
    clients: Sequence[str],
    *,
    sizes: Mapping[str, float] | None = None,
    fraction: float = 0.5,
    **options: Any,
) -> Sampler:
    """The sampler called `name` for a federation."""
    return find_sampler(name, options)(clients, sizes=sizes, fraction=fraction, **options)
