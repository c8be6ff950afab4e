"""Frontiers: the best loss for every size, and what fairness costs in utility."""

from __future__ import annotations

import math
import time
from typing import Any

import msgspec
import numpy as np

from ..errors import FedwiseError
from ..estimation.estimates import Estimates
from ..objective.pfl import Terms, Weights, terms
from ..pool.pool import Pool
from .constraints import Constraints
from .control import Control, Progress
from .evidence import standard_error
from .feasible import check
from .outcome import Method
from .problem import PFL, Problem
from .select import estimates_of, feasible_sizes, resolve_method
from .sizes import Sizes, parse_sizes


class Point(msgspec.Struct, frozen=True):
    """The best federation of one size."""

    k: int
    loss: float
    std_error: float | None
    terms: Terms
    clients: tuple[str, ...]
    status: str


class Tradeoff(msgspec.Struct, frozen=True):
    """A federation that no other one beats on both fairness and utility.

    `unfairness` is alpha·direct + beta·proxy bias, `utility` is lam·signal − gamma·redundancy, both with
    the weights asked for; `share` is the emphasis on fairness (0 none, 1 only) that found it.
    """

    share: float
    unfairness: float
    utility: float
    terms: Terms
    clients: tuple[str, ...]


class Frontier(msgspec.Struct, frozen=True, kw_only=True):
    """Best federations by size, and the trade-off between fairness and utility at one size."""

    points: tuple[Point, ...]
    pareto: tuple[Tradeoff, ...] = ()
    pareto_k: int | None = None
    weights: Weights = Weights()
    estimator: str = ""
    seconds: float = 0.0
    seed: int = 0
    status: str = "complete"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    @property
    def best(self) -> Point:
        """The size of lowest loss."""
        return min(self.points, key=lambda point: (point.loss, point.k))


def frontier(
    pool: Pool | Estimates,
    sizes: Sizes | None = None,
    *,
    weights: Weights | None = None,
    estimator: str = "shrinkage",
    method: Method | str = "auto",
    constraints: Constraints | None = None,
    pareto_k: int | None = None,
    pareto_points: int = 0,
    seed: int = 0,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Frontier:
    """Best loss and terms for every size.

    Parameters
    ----------
    sizes
        As `k` of `select`; default every size from 2 to 20 (or all clients).
    pareto_points, pareto_k
        Also trace the fairness–utility front with this many emphases, at this size (default the best).
    """
    began = time.perf_counter()
    estimates = estimates_of(pool, estimator)
    weights = _weights(pool, weights)
    count = len(estimates.clients)
    wanted = parse_sizes(sizes if sizes is not None else (min(2, count), min(20, count)), count)
    if pareto_k is not None:
        parse_sizes(pareto_k, count)
    rules = constraints or Constraints()
    feasible = feasible_sizes(rules, estimates, wanted)
    problem = Problem.of(estimates, PFL(weights))
    work = sum(math.comb(len(limits.free), size - len(limits.fixed)) for size, limits in feasible.items())
    with Control(threads=threads, progress=progress) as control:

        def search() -> list[Point]:
            points = []
            for size, limits in feasible.items():
                used = resolve_method(method, problem, work)
                outcome = used.search(problem, limits, size, seed=seed, control=control)
                proof = "exact" if outcome.exhaustive else "local" if outcome.local else "found"
                points.append(
                    Point(
                        size,
                        outcome.loss,
                        standard_error(estimates, outcome.members, weights),
                        terms(estimates, np.asarray(outcome.members)),
                        tuple(estimates.clients[i] for i in outcome.members),
                        "interrupted" if control.stopped() else proof,
                    )
                )
                if control.stopped():
                    break
            return points

        points = control.run(search)
        interrupted = control.interrupted
    front: tuple[Tradeoff, ...] = ()
    if pareto_points and not interrupted:
        if pareto_k is None:
            pareto_k = min(points, key=lambda point: (point.loss, point.k)).k
        front = pareto(
            estimates, pareto_k, weights=weights, points=pareto_points, method=method, constraints=rules,
            seed=seed, threads=threads, progress=progress,
        )  # fmt: skip
    return Frontier(
        points=tuple(points),
        pareto=front,
        pareto_k=pareto_k,
        weights=weights,
        estimator=estimates.estimator,
        seconds=time.perf_counter() - began,
        seed=seed,
        status="interrupted" if interrupted else "complete",
    )


def pareto(
    pool: Pool | Estimates,
    k: int,
    *,
    weights: Weights | None = None,
    estimator: str = "shrinkage",
    points: int = 15,
    method: Method | str = "auto",
    constraints: Constraints | None = None,
    seed: int = 0,
    threads: int | None = None,
    progress: Progress | None = None,
) -> tuple[Tradeoff, ...]:
    """The fairness–utility front at size `k`, by minimising share·unfairness − (1 − share)·utility.

    A weighted sum reaches the convex part of the front. Every federation the searches ranked competes, so
    points of its concave part may appear too, but they are not searched for.
    """
    if points < 2:
        raise FedwiseError(f"points must be at least 2, got {points}")
    estimates = estimates_of(pool, estimator)
    weights = _weights(pool, weights)
    limits = check(constraints or Constraints(), estimates.clients, estimates.totals, k)
    met: dict[tuple[int, ...], float] = {}
    with Control(threads=threads, progress=progress) as control:

        def search() -> None:
            for share in np.linspace(0.0, 1.0, points):
                tilted = _tilted(weights, float(share))
                if tilted is None:
                    continue
                problem = Problem.of(estimates, PFL(tilted))
                work = points * math.comb(len(limits.free), k - len(limits.fixed))
                outcome = resolve_method(method, problem, work).search(
                    problem, limits, k, seed=seed, control=control
                )
                met.setdefault(outcome.members, float(share))
                for _, members in outcome.ranked:
                    met.setdefault(members, float(share))
                if control.stopped():
                    break

        control.run(search)
    found = []
    for members, share in met.items():
        parts = terms(estimates, np.asarray(members))
        unfairness, utility = parts.unfairness(weights), parts.utility(weights)
        found.append(
            Tradeoff(share, unfairness, utility, parts, tuple(estimates.clients[i] for i in members))
        )
    return undominated(found)


def undominated(found: list[Tradeoff]) -> tuple[Tradeoff, ...]:
    """Those no other one matches on both counts and beats on one, fairest first."""
    front: list[Tradeoff] = []
    for point in sorted(found, key=lambda p: (p.unfairness, -p.utility, p.clients)):
        if not front or point.utility > front[-1].utility:
            front.append(point)
    return tuple(front)


def _tilted(weights: Weights, share: float) -> Weights | None:
    """Weights with emphasis `share` on fairness; ``None`` where nothing would be left to minimise."""
    parts = (2 * share * weights.alpha, 2 * share * weights.beta,
             2 * (1 - share) * weights.gamma, 2 * (1 - share) * weights.lam)  # fmt: skip
    return Weights(*parts) if any(parts) else None


def _weights(pool: Pool | Estimates, weights: Weights | None) -> Weights:
    if weights is not None:
        return weights
    return pool.plan.weights if isinstance(pool, Pool) else Weights()
