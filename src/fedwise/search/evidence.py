"""Evidence: what stands behind a selection. Contributions, error bars, and how often it comes out again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ..estimation import uncertainty
from ..estimation.estimates import Estimates
from ..estimation.redraw import redraws as redraws_of
from ..objective.weights import Weights
from .annealing import Annealing
from .constraints import Limits
from .control import Control
from .neighbourhood import Swaps, best_swaps, descend
from .outcome import Found, Outcome, as_members
from .problem import PFL, Problem
from .selection import Contribution
from .shapley import sample_shapley

Ints = npt.NDArray[np.int64]
Evidence = Literal["none", "quick", "full"]

#: Evaluations spent on sampled orders, and redraws of the noise.
_SHAPLEY = {"none": 0, "quick": 20_000, "full": 400_000}
_REDRAWS = {"none": 0, "quick": 10, "full": 200}
#: Quick evidence redraws only where clients × cells stays below this: about a second in all.
_QUICK_CELLS = 500_000
#: Neighbourhoods beyond this are not scanned a second time for the gap.
_GAP_SWAPS = 250_000
#: Swaps that are compared under the noise: all of them in pools of a hundred clients.
_NEAR_SWAPS = 1024
#: Two-sided 95% of a normal law.
_NORMAL = 1.959964


class Redraws(NamedTuple):
    """What redrawn noise says of a selection.

    Parameters
    ----------
    frequency
        Share of re-searches that choose each client.
    made
        Number of redraws.
    optimism
        Of each redraw, by how much the federation it makes the search choose looks better than it is; see `frequency`.
    regret
        Of each redraw, by how much that federation is truly worse than the selection.
    changed
        Of each redraw, how many members of the selection it does not choose.
    """

    frequency: Mapping[str, float] = MappingProxyType({})
    made: int = 0
    optimism: tuple[float, ...] = ()
    regret: tuple[float, ...] = ()
    changed: tuple[int, ...] = ()


def standard_error(estimates: Estimates, members: tuple[int, ...], weights: Weights) -> float | None:
    """σ_PFL of a federation from the estimator; ``None`` where it is not known."""
    value = uncertainty.standard_error(estimates, members, weights)
    return value if math.isfinite(value) else None


def interval(
    estimates: Estimates,
    members: tuple[int, ...],
    weights: Weights,
    *,
    loss: float,
    optimism: tuple[float, ...],
) -> tuple[float, float] | None:
    """Where the true loss of a selected federation lies (95%); ``None`` where it is not known.

        loss + mean optimism ± 1.96·√(std_error² + variance of the mean optimism)

    The loss is the lowest of many, so its noise is a favourable one, and what is unusual about its members is
    partly shrunk away. The optimism, measured by redraws of the noise, takes both back. Without redraws only the
    `lift` of the estimator itself is known. The plain estimator has no interval: its clipping bias is many times its
    standard error.
    """
    error, lift = uncertainty.error_and_lift(estimates, members, weights)
    if not math.isfinite(error) or (estimates.posterior is None and error > 0):
        return None
    found = np.asarray(optimism, dtype=np.float64)
    centre = loss + (float(found.mean()) if len(found) else lift)
    doubt = float(found.var(ddof=1)) / len(found) if len(found) > 1 else 0.0
    half = _NORMAL * math.sqrt(error**2 + doubt)
    return centre - half, centre + half


def contributions(
    problem: Problem, members: tuple[int, ...], *, evidence: Evidence, seed: int
) -> tuple[Contribution, ...]:
    """Leave-one-out change and sampled Shapley value of each member."""
    k = len(members)
    ids = np.asarray(members, dtype=np.int64)
    loss = problem.loss(ids)
    without = problem.dropped(problem.sums(ids), ids) if k > 1 else np.full(1, np.nan)
    budget = _SHAPLEY[evidence] if problem.spec is not None else _SHAPLEY[evidence] // 50
    orders = min(budget // k, 4000)
    if orders < 2:
        return tuple(
            Contribution(problem.clients[i], None if math.isnan(w) else float(loss - w))
            for i, w in zip(members, without, strict=True)
        )
    rng = np.random.default_rng([seed & 0xFFFFFFFFFFFFFFFF, 11])
    means, errors = sample_shapley(lambda paths: problem.along(ids[paths]), k, orders=orders, rng=rng)
    return tuple(
        Contribution(
            problem.clients[i], None if math.isnan(w) else float(loss - w), float(mean), float(error)
        )
        for i, w, mean, error in zip(members, without, means, errors, strict=True)
    )


def swaps_around(problem: Problem, limits: Limits, outcome: Outcome, control: Control) -> Swaps | None:
    """The best allowed swaps of the federation found, best first; ``None`` where they are too many to scan again."""
    slots = len(outcome.members) - len(limits.fixed)
    if slots * (len(limits.free) - slots) > _GAP_SWAPS or control.stopped():
        return None
    swaps = best_swaps(problem, limits, np.asarray(outcome.members), control=control, keep=_NEAR_SWAPS)
    return swaps if swaps.complete else None


def nearest_swap(problem: Problem, outcome: Outcome, swaps: Swaps | None) -> Found | None:
    """Gap to, and members of, the best federation one swap away; ``None`` where there is none."""
    members = set(outcome.members)
    if swaps is not None:
        if not len(swaps.losses):
            return None
        swapped = as_members([*(members - {int(swaps.outs[0])}), int(swaps.ins[0])])
        return problem.loss(swapped) - outcome.loss, swapped
    # A descent has already ranked the neighbours of the optimum it proved.
    for loss, other in outcome.ranked:
        if len(members - set(other)) == 1:
            return loss - outcome.loss, other
    return None


def redraw_count(estimates: Estimates, problem: Problem, evidence: Evidence) -> int:
    """How many times to redraw the noise: none where there is none, or where it would take too long."""
    if not np.any(estimates.sigmas) or problem.spec is None:
        return 0
    if evidence == "quick" and estimates.cells.size > _QUICK_CELLS:
        return 0
    return _REDRAWS[evidence]


def frequency(
    estimates: Estimates,
    weights: Weights,
    limits: Limits,
    outcome: Outcome,
    *,
    redraws: int,
    seed: int,
    control: Control,
) -> Redraws:
    """Share of re-searches with redrawn noise that choose each client, and the optimism of their choices.

    A parametric bootstrap: the estimates stand for the truth, noise of each release's scale is added to them,
    the same estimator and a short search run again: one chain, and a descent from the selection W.

    The estimates are the truth here, so how much better the redraw's choice V looks than it is is known: estimated
    minus redrawn loss of V. That holds the noise that made the search choose V, and the bias of the estimator for
    federations such as V. What V truly loses against W is the regret of choosing under noise.
    """
    original = Problem.of(estimates, PFL(weights))
    optimism: list[float] = []
    regret: list[float] = []
    changed: list[int] = []
    chosen = np.zeros(len(estimates.clients))
    k = len(outcome.members)
    mine = original.loss(outcome.members)
    short = Annealing(chains=1, steps=1000)
    made = 0
    for number, again in enumerate(redraws_of(estimates, seed, range(redraws))):
        if control.stopped():
            break
        problem = Problem.of(again, PFL(weights))
        found = short.search(problem, limits, k, seed=seed + number + 1, control=control)
        warm = descend(problem, limits, outcome.members, control=control)
        best = warm.members if warm.loss < found.loss else found.members
        chosen[list(best)] += 1
        made += 1
        truly = original.loss(best)
        optimism.append(truly - problem.loss(best))
        regret.append(max(0.0, truly - mine))
        changed.append(len(set(outcome.members) - set(best)))
    if made == 0:
        return Redraws()
    shares = chosen / made
    often = np.argsort(-shares, kind="stable")
    named = {estimates.clients[i]: float(shares[i]) for i in often if shares[i] > 0}
    return Redraws(named, made, tuple(optimism), tuple(regret), tuple(changed))
