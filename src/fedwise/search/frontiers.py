"""Frontiers: the best loss for every size, and what fairness costs in utility."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ..deferred import Deferred
from ..errors import FedwiseError
from ..estimation.estimates import Estimates
from ..notebook import html_table, plot
from ..objective.pfl import Terms, terms
from ..objective.weights import Weights
from ..pool.pool import Pool
from .constraints import Constraints
from .control import Control, Progress
from .describe import Searched, status_of
from .entry import estimates_of, feasible_sizes, search_sizes, weights_of
from .evidence import standard_error
from .feasible import check
from .methods import resolve_method
from .outcome import Method
from .point import Point as Point
from .point import undominated
from .problem import PFL, Problem
from .seats import seat
from .sizes import Sizes, parse_sizes

if TYPE_CHECKING:
    import polars as pl
else:
    pl = Deferred("polars")


class Frontier(msgspec.Struct, frozen=True, kw_only=True):
    """Best federations by size, and the trade-off between fairness and utility at one size."""

    points: tuple[Point, ...]
    pareto: tuple[Point, ...] = ()
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

    def to_frame(self) -> pl.DataFrame:
        """A row for each size."""
        return pl.DataFrame([{"k": p.k, "loss": p.loss, "clients": list(p.clients)} for p in self.points])

    def plot(self) -> Any:
        """The lowest loss of every size as an `altair.Chart`."""
        return plot(self)

    def __repr__(self) -> str:
        return f"Frontier({len(self.points)} sizes, lowest loss {self.best.loss:.4f} at k = {self.best.k})"

    def _repr_html_(self) -> str:
        rows = [(p.k, f"{p.loss:.6f}", ", ".join(p.clients)) for p in self.points]
        return html_table(rows, head=("k", "loss", "clients"))

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
    weights = weights_of(pool, weights)
    count = len(estimates.clients)
    wanted = parse_sizes(sizes if sizes is not None else (min(2, count), min(20, count)), count)
    if pareto_k is not None:
        parse_sizes(pareto_k, count)
    rules, _ = seat(constraints or Constraints(), pool, max(wanted))
    feasible = feasible_sizes(rules, estimates, wanted)
    problem = Problem.of(estimates, PFL(weights))
    with Control(threads=threads, progress=progress) as control:
        found = control.run(lambda: search_sizes(problem, feasible, method, seed, control))
        interrupted = control.interrupted
    points = tuple(
        # Only the size that was being searched when the search was stopped lacks its proof.
        _point(estimates, weights, entry, interrupted=interrupted and entry is found[-1])
        for entry in found
    )
    traced = Frontier(
        points=points,
        pareto_k=pareto_k,
        weights=weights,
        estimator=estimates.estimator,
        seed=seed,
        status="interrupted" if interrupted else "complete",
    )
    if pareto_points and not interrupted:
        size = traced.best.k if pareto_k is None else pareto_k
        front = pareto(
            estimates,
            size,
            weights=weights,
            points=pareto_points,
            method=method,
            constraints=rules,
            seed=seed,
            threads=threads,
            progress=progress,
        )
        traced = msgspec.structs.replace(traced, pareto=front, pareto_k=size)
    return msgspec.structs.replace(traced, seconds=time.perf_counter() - began)


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
) -> tuple[Point, ...]:
    """The fairness–utility front at size `k`, by minimising share·unfairness − (1 − share)·utility.

    A weighted sum reaches the convex part of the front. Every federation the searches ranked competes, so
    points of its concave part may appear too, but they are not searched for.
    """
    if points < 2:
        raise FedwiseError(f"points must be at least 2, got {points}")
    estimates = estimates_of(pool, estimator)
    weights = weights_of(pool, weights)
    rules, _ = seat(constraints or Constraints(), pool, k)
    limits = check(rules, estimates.clients, estimates.totals, k)
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
    parts = {members: terms(estimates, np.asarray(members)) for members in sorted(met)}
    front = undominated(
        parts,
        cost=lambda members: parts[members].unfairness(weights),
        gain=lambda members: parts[members].utility(weights),
    )
    return tuple(_trade(estimates, weights, members, parts[members], met[members]) for members in front)


def _point(estimates: Estimates, weights: Weights, entry: Searched, *, interrupted: bool) -> Point:
    members = entry.outcome.members
    return Point(
        k=entry.size,
        loss=entry.outcome.loss,
        std_error=standard_error(estimates, members, weights),
        terms=terms(estimates, np.asarray(members)),
        clients=tuple(estimates.clients[i] for i in members),
        status=status_of(entry.outcome, interrupted=interrupted),
    )


def _trade(
    estimates: Estimates, weights: Weights, members: tuple[int, ...], parts: Terms, share: float
) -> Point:
    return Point(
        k=len(members),
        loss=parts.loss(weights),
        terms=parts,
        clients=tuple(estimates.clients[i] for i in members),
        share=share,
        unfairness=parts.unfairness(weights),
        utility=parts.utility(weights),
    )


def _tilted(weights: Weights, share: float) -> Weights | None:
    """Weights with emphasis `share` on fairness; ``None`` where nothing would be left to minimise."""
    parts = (2 * share * weights.alpha, 2 * share * weights.beta,
             2 * (1 - share) * weights.gamma, 2 * (1 - share) * weights.lam)  # fmt: skip
    return Weights(*parts) if any(parts) else None
