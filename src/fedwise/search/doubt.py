"""Doubt: what the noise leaves open about a federation that was chosen.

The estimates are the means of what remains possible given the releases, so the true difference between a swap
(a leaves, b joins) and the federation is, to first order,

    d_ab = estimated difference + y_b − y_a,     y_i = s_i·t,

one independent error for each client, s_i from `client_errors`. Many draws of all y at once give the chance that
the best of all swaps is truly better, and the loss above it. The estimates are conditional on the releases, so
the draws need no correction for having chosen the best: that holds as far as the estimator's prior does, which
benchmarks/certificate.py measures.

t is Student's with `DEGREES` degrees of freedom instead of a normal one, because s_i itself is estimated, and
because a few clients are farther from the pool than a normal law expects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..estimation.estimates import Estimates
from ..objective.weights import Weights
from .client_errors import client_errors
from .neighbourhood import TOLERANCE, Swaps
from .outcome import Outcome

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Degrees of freedom of a client's error: chosen on three census tasks (benchmarks/certificate.py, seeds 0–9).
DEGREES = 10
#: Draws: a simulated chance of one half has a standard error of 1.1%.
DRAWS = 2000
#: Chance with which the loss above the best swap stays below `Doubt.regret_bound`.
LEVEL = 0.9


class Doubt(NamedTuple):
    """What draws of the clients' errors say about the swaps of a federation.

    Parameters
    ----------
    chance
        Chance that some swap is truly better.
    regret, regret_bound
        Mean of the true loss above the best swap, and its 90% quantile; 0 where no swap is better.
    nearest_error, nearest_chance
        Standard deviation of the difference to the first swap, and the chance that it is truly better.
    """

    chance: float
    regret: float
    regret_bound: float
    nearest_error: float
    nearest_chance: float


def doubt(
    estimates: Estimates, outcome: Outcome, swaps: Swaps, weights: Weights, *, seed: int
) -> Doubt | None:
    """What is left open about a federation by the noise; ``None`` where the estimator gives no posterior.

    Parameters
    ----------
    swaps
        The swaps that are allowed, the estimated best first.
    """
    if not len(swaps.losses):
        return None
    gaps = swaps.losses - outcome.loss
    clients, at = np.unique(np.concatenate([swaps.outs, swaps.ins]), return_inverse=True)
    if not np.any(estimates.sigmas):
        errors = np.zeros(len(clients))
    elif estimates.posterior is None:
        return None
    else:
        errors = client_errors(estimates, estimates.posterior, np.asarray(outcome.members), clients, weights)
    rng = np.random.default_rng([seed & 0xFFFFFFFFFFFFFFFF, 17])
    return simulate(gaps, errors, at[: len(gaps)], at[len(gaps) :], rng)


def simulate(
    gaps: Sequence[float] | Floats, errors: Sequence[float] | Floats, outs: Ints, ins: Ints, rng: np.random.Generator
) -> Doubt:  # fmt: skip
    """Draw the clients' errors and compare all swaps.

    Parameters
    ----------
    gaps
        Shape (swaps,): estimated loss after each swap less the federation's.
    errors
        Shape (clients,): scale of each client's error.
    outs, ins
        Shape (swaps,): positions in `errors` of who leaves and who joins.
    """
    scales, estimated = np.asarray(errors, dtype=np.float64), np.asarray(gaps, dtype=np.float64)
    drawn = rng.standard_t(DEGREES, size=(DRAWS, len(scales))) * scales
    best, first = np.empty(DRAWS), np.empty(DRAWS)
    step = max(1, 2**17 // len(estimated))  # a megabyte at a time stays in the processor's cache
    each = np.ascontiguousarray(drawn.T)  # a client's draws side by side
    for start in range(0, DRAWS, step):
        some = each[:, start : start + step]
        true = estimated[:, None] + some[ins]
        true -= some[outs]
        best[start : start + step], first[start : start + step] = true.min(axis=0), true[0]
    better = best < -TOLERANCE  # beyond rounding
    regret = np.where(better, -best, 0.0)
    spread = DEGREES / (DEGREES - 2.0) * (scales[outs[0]] ** 2 + scales[ins[0]] ** 2)
    return Doubt(
        chance=float(np.mean(better)),
        regret=float(regret.mean()),
        regret_bound=float(np.quantile(regret, LEVEL)),
        nearest_error=float(np.sqrt(spread)),
        nearest_chance=float(np.mean(first < -TOLERANCE)),
    )
