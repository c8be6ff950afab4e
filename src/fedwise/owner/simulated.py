"""Simulated policy: terms of a client that exists in a simulation only. Its releases say so and protect nobody."""

from __future__ import annotations

import math
from pathlib import Path

from ..schema.schema import Schema
from .policy import Policy


class SimulatedPolicy(Policy, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A policy for public data in a simulation: seeded noise, no ledger, any plan on the declared schema.

    No policy file can make one. Make one with `simulated_policy`.
    """

    declared: Schema | None = None

    @property
    def agreed(self) -> Schema:
        """The schema the app declared."""
        return self.declared if self.declared is not None else super().agreed


def simulated_policy(client: str, schema: Schema | str | Path, *, seed: int = 0) -> Policy:
    """Terms of one simulated client; its releases are marked *simulated*.

    Parameters
    ----------
    client
        Public name.
    schema
        The schema plans may use, or its file.
    seed
        Seed of the noise; each client has a stream of its own.
    """
    declared = schema if isinstance(schema, Schema) else Schema.load(schema)
    return SimulatedPolicy(
        client=client,
        schema=Path(),
        max_epsilon=math.inf,
        max_delta=0.5,
        simulated_seed=seed,
        declared=declared,
    )
