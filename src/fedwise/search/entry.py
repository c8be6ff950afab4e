"""Entry to the search: `select`, a pool and a size in, a selection with its evidence out."""

from __future__ import annotations

import math
import time
from typing import Unpack, get_args

import msgspec
import numpy as np

from ..errors import FedwiseError, Infeasible, nearest
from ..estimation import estimate
from ..estimation.estimates import Estimates
from ..objective.balance import Balance, label_only
from ..objective.representative import Representative
from ..objective.weights import Weights
from ..pool.pool import Pool
from .chooser import Asks, Chooser, Question
from .constraints import Constraints, Limits, Rules
from .control import Control, Progress
from .describe import Inquiry, Searched
from .evidence import Evidence
from .feasible import check
from .greedy import Greedy
from .methods import resolve_method as resolve_method
from .outcome import Method
from .problem import PFL, Objective, Problem
from .scores import informed
from .seats import seat
from .selection import Selection
from .sizes import Sizes, parse_sizes


class More(Rules, total=False):
    """Keywords of `select` beside its settings: the rules of `Constraints`, and how a size is chosen."""

    smallest: float | None
    representative: float | None
    alternatives: int
    task: str | None


def select(
    pool: Pool | Estimates,
    k: Sizes | None = None,
    *,
    objective: Objective | Chooser | None = None,
    constraints: Constraints | None = None,
    method: Method | str = "auto",
    evidence: Evidence = "quick",
    weights: Weights | None = None,
    estimator: str = "shrinkage",
    seed: int = 0,
    threads: int | None = None,
    progress: Progress | None = None,
    **more: Unpack[More],
) -> Selection:
    """Choose the federation of lowest loss.

    Parameters
    ----------
    pool
        A pool of releases, or estimates already made from one.
    k
        The size: ``5``; or several, ``(5, 15)`` or ``"5:15"``, of which the size of lowest loss wins and
        all are reported. May be left out with `smallest` or `representative` (then every size from 2).
    objective
        Another objective than the PFL: a forecast, a rehearsal, your own (`fedwise.search.problem.Objective`).
    constraints
        What the federation must satisfy beside its size. Its rules may also be keywords: ``include=["CA"]``.
    method
        ``auto`` (exact where it fits in about ten seconds, else annealing with descent), ``annealing``,
        ``exact``, ``greedy``, or a settings object such as ``Annealing.paper()``.
    evidence
        ``none``, ``quick`` or ``full``.
    weights
        Weights of the four terms; default those of the plan, else the paper's.
    estimator
        ``shrinkage`` or ``plain``; ignored for estimates.
    seed
        Seed of every random choice. The answer does not depend on `threads`.
    threads
        Worker threads; default the cores at hand.
    progress
        Called with (evaluations done, expected, best loss). Ctrl-C returns the best found so far.
    **more
        The rules of `Constraints`. ``smallest``: take the smallest size whose loss is within this tolerance of
        the best size's. ``representative``: take the smallest federation whose associations differ from the
        pool's by at most this many bits for each table. ``alternatives``: how many others to report (5). ``task``:
        of several targets of the plan, the one to choose for; default all.

    Raises
    ------
    FedwiseError
        A size, name, method or constraint is not valid.
    Infeasible
        No federation satisfies the constraints; the message names the one to blame.
    """
    began = time.perf_counter()
    asked = Constraints.of(constraints, **_rules(more))
    pool = _for_task(pool, more.get("task"))
    smallest, near, alternatives = (
        more.get("smallest"),
        more.get("representative"),
        more.get("alternatives", 5),
    )
    _check(k, evidence, alternatives, seed, threads, smallest, near, objective)
    estimates = estimates_of(pool, estimator)
    count, weights = len(estimates.clients), weights_of(pool, weights)
    sizes = parse_sizes(k if k is not None else (min(2, count), count), count)
    rules, notes = seat(asked, pool, max(sizes))
    feasible = feasible_sizes(rules, estimates, sizes)
    asks = Asks(estimates, weights, alternatives, seed)
    with Control(threads=threads, progress=progress) as control:
        chosen = control.run(
            lambda: _choose_by(objective, pool, feasible, method, evidence, control, asks, smallest, near)
        )
    given = rules.given() | {name: True for name in ("exclude_suspect", "answered") if getattr(asked, name)}
    alerts, seconds = (*chosen.alerts, *notes), time.perf_counter() - began
    return msgspec.structs.replace(chosen, constraints=given, alerts=alerts, seconds=seconds)


def _choose_by(
    objective: Objective | Chooser | None, pool: Pool | Estimates, feasible: dict[int, Limits], method: Method | str,
    evidence: Evidence, control: Control, asks: Asks, smallest: float | None, near: float | None,
) -> Selection:  # fmt: skip
    """The selection of a search, or of an objective that chooses for itself."""
    if isinstance(objective, Chooser):
        if method != "auto":
            raise FedwiseError(
                f"method must be left out where the objective, {objective.name}, searches by itself"
            )
        return objective.choose(Question.of(pool, feasible, control, *asks))
    estimates, weights, alternatives, seed = asks
    goal = objective or usual_objective(estimates, weights, near)
    if isinstance(pool, Pool) and isinstance(goal, PFL):
        estimates = _with_scores(pool, estimates, goal, feasible, control, seed)
    problem = Problem.of(estimates, goal)
    inquiry = Inquiry(problem, estimates, released(pool), weights, evidence, alternatives, seed)
    found = search_sizes(problem, feasible, method, seed, control, enough=near)
    if near is not None and not control.stopped():
        _check_near(found, near)
    return inquiry.describe(_choose(found, smallest, near), found, control)


def _with_scores(
    pool: Pool, estimates: Estimates, goal: PFL, feasible: dict[int, Limits], control: Control, seed: int
) -> Estimates:
    """Estimates that know what clients answered to a score, by the slope at the federation that tables alone choose.

    A score serves the loss it was asked for: with other weights than the plan's it is not read.
    """
    if pool.scores is None or estimates.posterior is None or goal.weights != pool.plan.weights:
        return estimates
    size = min(feasible)
    first = Greedy("exchange").search(
        Problem.of(estimates, goal), feasible[size], size, seed=seed, control=control
    )
    last = max(spending.stage for spending in pool.spendings)
    known = np.flatnonzero([spending.stage == last for spending in pool.spendings])
    return informed(estimates, pool.scores, np.array(first.members), goal.weights, known)


def _rules(more: More) -> Rules:
    """The keywords that are constraints. Raises `TypeError` for a keyword that `select` does not have."""
    known = More.__annotations__
    for name in more:
        if name in ("forecast", "model"):
            raise TypeError(
                f"select() has no keyword '{name}'; add a forecast to a selection with "
                "fedwise.forecasting.with_forecast(selection, pool)"
            )
        if name not in known:
            raise TypeError(f"select() has no keyword '{name}'{nearest(name, known)}")
    return {name: value for name, value in more.items() if name in Rules.__annotations__}  # type: ignore[return-value]


def _check(
    k: object, evidence: str, alternatives: int, seed: int, threads: int | None,
    smallest: float | None, representative: float | None, objective: object,
) -> None:  # fmt: skip
    if k is None and smallest is None and representative is None:
        raise FedwiseError(
            "k (--size) must be given: how many clients, such as 5, a range such as 5:15, or a tolerance (--smallest)"
        )
    if evidence not in get_args(Evidence):
        raise FedwiseError(f"evidence must be one of {', '.join(get_args(Evidence))}, got '{evidence}'")
    if alternatives < 0:
        raise FedwiseError(f"alternatives must be at least 0, got {alternatives}")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise FedwiseError(f"seed must be an integer of at least 0, got {seed!r}")
    if threads is not None and threads < 1:
        raise FedwiseError(f"threads must be at least 1, got {threads}")
    for name, value in (("smallest", smallest), ("representative", representative)):
        if value is not None and not (math.isfinite(value) and value >= 0):
            raise FedwiseError(f"{name} must be a finite tolerance of at least 0, got {value}")
    if representative is not None and (smallest is not None or objective is not None):
        raise FedwiseError("representative must stand alone; drop smallest and objective")
    if smallest is not None and isinstance(objective, Chooser):
        raise FedwiseError(
            f"smallest must be left out with the objective '{objective.name}'; give sizes by k"
        )


def released(pool: Pool | Estimates) -> Pool | None:
    """The pool of releases, where there is one."""
    return pool if isinstance(pool, Pool) else None


def estimates_of(pool: Pool | Estimates, estimator: str) -> Estimates:
    """Estimates of a pool, or those given."""
    if isinstance(pool, Estimates):
        return pool
    if not isinstance(pool, Pool):
        raise FedwiseError(
            f"pool must be a Pool or Estimates, got {type(pool).__name__}; use Pool.load(directory)"
        )
    return estimate(pool, estimator=estimator)


def _for_task(pool: Pool | Estimates, task: str | None) -> Pool | Estimates:
    """A pool as one of its targets sees it."""
    if task is None:
        return pool
    if not isinstance(pool, Pool):
        raise FedwiseError("task must be named for a pool, got estimates; estimate pool.for_target(NAME)")
    return pool.for_target(task)


def usual_objective(estimates: Estimates, weights: Weights, near: float | None = None) -> Objective:
    """The PFL; where releases tell the label alone, the balance of its classes; distance where it must be `near`."""
    if near is not None:
        return Representative()
    return Balance() if label_only(estimates.schema) else PFL(weights)


def weights_of(pool: Pool | Estimates, weights: Weights | None) -> Weights:
    """The weights given, else the plan's, else the paper's."""
    if weights is not None:
        return weights
    return pool.plan.weights if isinstance(pool, Pool) else Weights()


def feasible_sizes(
    constraints: Constraints, estimates: Estimates, sizes: tuple[int, ...]
) -> dict[int, Limits]:
    """Limits of each size that has a federation; if none has, the first size's reason is raised."""
    found: dict[int, Limits] = {}
    reason: Infeasible | None = None
    for size in sizes:
        try:
            found[size] = check(constraints, estimates.clients, estimates.totals, size)
        except Infeasible as error:
            reason = reason or error
    if not found and reason is not None:
        raise reason
    return found


def search_sizes(
    problem: Problem,
    feasible: dict[int, Limits],
    method: Method | str,
    seed: int,
    control: Control,
    *,
    enough: float | None = None,
) -> list[Searched]:
    """Search one size after another; stop at the first whose loss is at most `enough`."""
    work = sum(math.comb(len(lim.free), size - len(lim.fixed)) for size, lim in feasible.items())
    found: list[Searched] = []
    for size, limits in feasible.items():
        if enough is not None and method == "auto":
            # Distances fall with size: exchange is enough to find the first size that is near.
            used: Method = Greedy("exchange")
        else:
            used = resolve_method(method, problem, work)
        outcome = used.search(problem, limits, size, seed=seed, control=control)
        found.append(Searched(size, limits, used, outcome))
        if control.stopped() or (enough is not None and outcome.loss <= enough):
            break
    return found


def _check_near(found: list[Searched], tolerance: float) -> None:
    if not found[-1].outcome.loss <= tolerance:
        raise Infeasible(
            f"no federation found is within {tolerance:g} bits of the pool; the nearest has distance "
            f"{min(entry.outcome.loss for entry in found):.4g}, raise the tolerance or allow larger sizes"
        )


def _choose(found: list[Searched], smallest: float | None, near: float | None) -> Searched:
    best = min(found, key=lambda entry: (entry.outcome.loss, entry.size))
    if near is not None:
        return next((entry for entry in found if entry.outcome.loss <= near), best)
    if smallest is None:
        return best
    return next(entry for entry in found if entry.outcome.loss <= best.outcome.loss + smallest)
