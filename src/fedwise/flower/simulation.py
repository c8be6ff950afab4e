"""Simulation: whether a ClientApp runs in one, and the policy its clients then have. A deployed node never gets it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from flwr.app import Context

from ..errors import FedwiseError
from ..owner.policy import Policy
from ..owner.simulated import simulated_policy
from ..schema.schema import Schema

#: Set while the in-process Grid runs a handler.
_IN_PROCESS: ContextVar[bool] = ContextVar("fedwise_in_process", default=False)


@contextmanager
def in_process() -> Iterator[None]:
    """Marks what runs inside as a simulation."""
    token = _IN_PROCESS.set(True)
    try:
        yield
    finally:
        _IN_PROCESS.reset(token)


def simulating() -> bool:
    """Whether this process is a worker of Flower's simulation, or the in-process Grid runs.

    Flower's simulation runs every ClientApp in a Ray actor; a SuperNode does not know Ray. A node's configuration
    is not asked: deployed nodes may have a ``partition-id`` too.
    """
    if _IN_PROCESS.get():
        return True
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized()) and _is_worker(ray)


def _is_worker(ray: object) -> bool:
    worker = getattr(getattr(ray, "_private", None), "worker", None)
    return worker is not None and worker.global_worker.mode == worker.WORKER_MODE


def simulation_policy(schema: Schema | Path, otherwise: str) -> Callable[[Context], Policy | str]:
    """A function of the node's context: one simulated client for each partition, or the path `otherwise`.

    The seed of the noise is the run's ``seed``, if its configuration has one, else 0.
    """

    def find(context: Context) -> Policy | str:
        if not simulating():
            if not Path(otherwise).exists():
                raise FedwiseError(
                    "no policy file; a deployed node names its own with --node-config 'policy=\"policy.toml\"', "
                    "the app's schema is for simulations only"
                )
            return otherwise
        seed = context.run_config.get("seed", 0)
        return simulated_policy(
            partition_name(context), schema, seed=seed if isinstance(seed, int) and seed >= 0 else 0
        )

    return find


def partition_name(context: Context) -> str:
    """Name of the client a simulated node plays, in the order of the partitions."""
    place = int(context.node_config.get("partition-id", context.node_id))
    last = int(context.node_config.get("num-partitions", place + 1)) - 1
    return f"partition-{place:0{len(str(max(last, 0)))}}"
