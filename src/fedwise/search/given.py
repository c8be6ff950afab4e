"""Given: a federation that was named, not searched, described like a selection."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..certificate import Certificate
from ..estimation import estimate
from ..estimation.uncertainty import standard_error
from ..objective.pfl import terms
from ..pool.pool import Pool
from .describe import flags_of
from .selection import Selection


def given(pool: Pool, members: Sequence[str]) -> Selection:
    """Its terms and loss, and what the releases say against it."""
    positions = np.sort(pool.index(members))
    estimates = estimate(pool)
    weights = pool.plan.weights
    found = terms(estimates, positions)
    error = float(standard_error(estimates, positions, weights))
    return Selection(
        clients=tuple(estimates.clients[i] for i in positions),
        k=len(positions),
        loss=found.loss(weights),
        terms=found,
        std_error=error if np.isfinite(error) else None,
        method="given",
        status="found",
        evaluations=1,
        seconds=0.0,
        seed=0,
        certificate=Certificate(
            statement="This federation was given, not searched: nothing is proven about it.",
            noise_statement="",
        ),
        weights=weights,
        estimator=estimates.estimator,
        pool=len(pool),
        plan_digest=pool.plan.digest,
        flags=flags_of(estimates, pool),
        alerts=tuple(f"release of '{alert.client}': {alert.reason}" for alert in pool.alerts),
    )
