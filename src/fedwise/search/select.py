"""select: the entry to the search. A pool and a size in, a selection with its evidence out."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from typing import get_args

import msgspec
import numpy as np

from ..certificate import Certificate, certify
from ..errors import FedwiseError, Infeasible, nearest
from ..estimation.estimates import Estimates
from ..objective.pfl import Weights, terms
from ..objective.representative import Representative
from ..pool.pool import Pool
from .annealing import Annealing
from .constraints import Constraints, Limits
from .control import Control, Progress
from .evidence import Evidence, contributions, frequency, nearest_swap, redraw_count, standard_error
from .exact import Exact
from .feasible import check
from .greedy import Greedy
from .outcome import Method, Outcome
from .problem import PFL, Objective, Problem
from .selection import Alternative, ForecastValue, Selection, SizeResult, Status
from .sizes import Sizes, parse_sizes

#: Cell evaluations that fit in about ten seconds on one core: compiled, plain tables, Python objective.
_AUTO_CELLS = {"consistent": 8e9, "plain": 4e9, "python": 1e8}

_METHODS: dict[str, Method] = {
    "annealing": Annealing(),
    "paper": Annealing.paper(),
    "exact": Exact(),
    "greedy": Greedy(),
    "greedy-forward": Greedy("forward"),
    "greedy-backward": Greedy("backward"),
    "greedy-exchange": Greedy("exchange"),
}


def select(
    pool: Pool | Estimates,
    k: Sizes | None = None,
    *,
    weights: Weights | None = None,
    estimator: str = "shrinkage",
    method: Method | str = "auto",
    objective: Objective | None = None,
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    min_records: float | None = None,
    min_client_records: float | None = None,
    groups: Mapping[str, str] | None = None,
    max_per_group: int | Mapping[str, int] | None = None,
    costs: Mapping[str, float] | None = None,
    budget: float | None = None,
    smallest: float | None = None,
    representative: float | None = None,
    alternatives: int = 5,
    evidence: Evidence = "quick",
    forecast: bool = False,
    model: str = "mlp",
    seed: int = 0,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Selection:
    """Choose the federation of lowest loss.

    Parameters
    ----------
    pool
        A pool of releases, or estimates already made from one.
    k
        The size: ``5``; or several, ``(5, 15)`` or ``"5:15"``, of which the size of lowest loss wins and
        all are reported. May be left out with `smallest` or `representative` (then every size from 2).
    weights
        Weights of the four terms; default those of the plan, else the paper's.
    estimator
        ``shrinkage`` or ``plain``; ignored for estimates.
    method
        ``auto`` (exact where it fits in about ten seconds, else annealing with descent), ``annealing``,
        ``exact``, ``greedy``, or a settings object such as ``Annealing.paper()``.
    objective
        Another objective than the PFL: see `fedwise.search.problem.Objective`.
    include, exclude, min_records, min_client_records, groups, max_per_group, costs, budget
        Constraints: see `fedwise.search.constraints.Constraints`.
    smallest
        Take the smallest size whose loss is within this tolerance of the best size's.
    representative
        Take the smallest federation whose mean distance to the pool's associations is at most this many
        bits a table; the objective is then that distance.
    alternatives
        How many other federations to report.
    evidence
        ``none``, ``quick`` (under a second or so) or ``full``.
    forecast
        Also forecast the metrics of the model the federation would train (some seconds).
    model
        The model that will be trained, ``mlp`` or ``logistic``: the forecast follows it. An objective that
        forecasts has settings of its own, which are kept.
    seed
        Seed of every random choice. The answer does not depend on `threads`.
    threads
        Worker threads; default the cores at hand.
    progress
        Called with (evaluations done, expected, best loss). Ctrl-C returns the best found so far.

    Raises
    ------
    FedwiseError
        A size, name, method or constraint is not valid.
    Infeasible
        No federation satisfies the constraints; the message names the one to blame.
    """
    began = time.perf_counter()
    _check(k, evidence, alternatives, seed, threads, smallest, representative, objective)
    estimates = estimates_of(pool, estimator)
    source = pool if isinstance(pool, Pool) else None
    if weights is None:
        weights = source.plan.weights if source is not None else Weights()
    constraints = Constraints(
        include=tuple(include),
        exclude=tuple(exclude),
        min_records=min_records,
        min_client_records=min_client_records,
        groups=dict(groups or {}),
        max_per_group=max_per_group,
        costs=dict(costs or {}),
        budget=budget,
    )
    sizes = parse_sizes(
        k if k is not None else (min(2, len(estimates.clients)), len(estimates.clients)),
        len(estimates.clients),
    )
    feasible = feasible_sizes(constraints, estimates, sizes)
    goal: Objective = Representative() if representative is not None else objective or PFL(weights)
    problem = Problem.of(estimates, goal)
    with Control(threads=threads, progress=progress) as control:

        def work() -> Selection:
            found = _search_sizes(problem, feasible, method, seed, control, enough=representative)
            if (
                representative is not None
                and not found[-1][1].loss <= representative
                and not control.stopped()
            ):
                raise Infeasible(
                    f"no federation found is within {representative:g} bits of the pool; the nearest has distance "
                    f"{min(outcome.loss for _, outcome, _ in found):.4g}, raise the tolerance or allow larger sizes"
                )
            size, outcome, used = _choose(found, smallest, representative)
            return _describe(
                problem, estimates, source, weights, feasible[size], outcome, used,
                found=found, alternatives=alternatives, evidence=evidence, seed=seed, control=control, began=began,
            )  # fmt: skip

        chosen = msgspec.structs.replace(control.run(work), constraints=constraints.given())
    if forecast:
        values = _forecast(estimates, chosen.clients, goal, model=model, seed=seed)
        chosen = msgspec.structs.replace(chosen, forecast=values)
    return chosen


def _forecast(
    estimates: Estimates, clients: tuple[str, ...], goal: Objective, *, model: str, seed: int
) -> tuple[ForecastValue, ...]:
    from ..forecasting import NAMES, Forecaster, Settings

    # What the search went by is what is shown: the objective's own target and settings.
    made = getattr(goal, "forecaster", None) or Forecaster(estimates, settings=Settings.for_model(model))
    found = made.predict(clients, seed=seed)
    return tuple(ForecastValue(name, found.metrics.value(name), found.std_errors.get(name)) for name in NAMES)


def resolve_method(method: Method | str, problem: Problem, work: float) -> Method:
    """The method object for a name. ``auto`` looks at the work, never at a clock: same seed, same answer.

    Parameters
    ----------
    work
        Federations an exact search would visit.
    """
    if not isinstance(method, str):
        if not hasattr(method, "search"):
            raise FedwiseError(
                f"method must be a name or a settings object such as Annealing(), got {method!r}"
            )
        return method
    if method == "auto":
        kind = "python" if problem.spec is None else "plain" if problem.spec.plain else "consistent"
        return Exact() if work * problem.width <= _AUTO_CELLS[kind] else Annealing()
    if method not in _METHODS:
        raise FedwiseError(f"method '{method}' is not known{nearest(method, ['auto', *_METHODS])}")
    return _METHODS[method]


def _check(
    k: object, evidence: str, alternatives: int, seed: int, threads: int | None,
    smallest: float | None, representative: float | None, objective: Objective | None,
) -> None:  # fmt: skip
    if k is None and smallest is None and representative is None:
        raise FedwiseError("k must be given; pass k=5, a range such as '5:15', or smallest=TOLERANCE")
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


def estimates_of(pool: Pool | Estimates, estimator: str) -> Estimates:
    """Estimates of a pool, or those given."""
    if isinstance(pool, Estimates):
        return pool
    if not isinstance(pool, Pool):
        raise FedwiseError(
            f"pool must be a Pool or Estimates, got {type(pool).__name__}; use Pool.load(directory)"
        )
    from ..estimation import estimate

    made: Estimates = estimate(pool, estimator=estimator)
    return made


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


def _search_sizes(
    problem: Problem, feasible: dict[int, Limits], method: Method | str, seed: int, control: Control,
    *, enough: float | None,
) -> list[tuple[int, Outcome, Method]]:  # fmt: skip
    work = sum(math.comb(len(lim.free), size - len(lim.fixed)) for size, lim in feasible.items())
    found: list[tuple[int, Outcome, Method]] = []
    for size, limits in feasible.items():
        if enough is not None and method == "auto":
            # Distances fall with size: exchange is enough to find the first size that is near.
            used: Method = Greedy("exchange")
        else:
            used = resolve_method(method, problem, work)
        found.append((size, used.search(problem, limits, size, seed=seed, control=control), used))
        if control.stopped() or (enough is not None and found[-1][1].loss <= enough):
            break
    return found


def _choose(
    found: list[tuple[int, Outcome, Method]], smallest: float | None, representative: float | None
) -> tuple[int, Outcome, Method]:
    best = min(found, key=lambda entry: (entry[1].loss, entry[0]))
    if representative is not None:
        return next((entry for entry in found if entry[1].loss <= representative), best)
    if smallest is None:
        return best
    return next(entry for entry in found if entry[1].loss <= best[1].loss + smallest)


def _describe(
    problem: Problem, estimates: Estimates, pool: Pool | None, weights: Weights, limits: Limits,
    outcome: Outcome, method: Method, *, found: list[tuple[int, Outcome, Method]], alternatives: int,
    evidence: Evidence, seed: int, control: Control, began: float,
) -> Selection:  # fmt: skip
    members = outcome.members
    is_pfl = isinstance(problem.objective, PFL)
    error = standard_error(estimates, members, weights) if is_pfl else None
    status: Status = "exact" if outcome.exhaustive else "local" if outcome.local else "found"
    if control.interrupted:
        status = "interrupted"
    gap = nearest_swap(problem, limits, outcome, control) if evidence != "none" else None
    simulated = pool is not None and pool.simulated
    statement = _statement(outcome, len(members), status)
    if is_pfl and evidence != "none":
        certificate = certify(
            estimates, members, weights,
            statement=statement, neighbour=gap, std_error=error, simulated=simulated, seed=seed,
        )  # fmt: skip
    else:
        why = (
            "were not asked for" if is_pfl else f"are not known for the objective '{problem.objective.name}'"
        )
        certificate = Certificate(
            statement=statement,
            noise_statement=f"Bounds on the effect of noise {why}.",
            gap=gap[0] if gap else None,
        )
    shares: dict[str, float] = {}
    redraws = redraw_count(estimates, problem, evidence) if is_pfl else 0
    if redraws and not control.stopped():
        shares, redraws = frequency(
            estimates, weights, limits, outcome, redraws=redraws, seed=seed, control=control
        )
    names = estimates.clients
    others = [entry for entry in outcome.ranked if entry[1] != members][:alternatives]
    return Selection(
        clients=tuple(names[i] for i in members),
        k=len(members),
        loss=outcome.loss,
        terms=terms(estimates, np.asarray(members)),
        std_error=error,
        method=method.name,
        status=status,
        evaluations=sum(entry[1].evaluations for entry in found),
        seconds=time.perf_counter() - began,
        seed=seed,
        certificate=certificate,
        chains=outcome.chains,
        agreed=outcome.agreed,
        alternatives=tuple(
            Alternative(tuple(names[i] for i in other), loss, loss - outcome.loss) for loss, other in others
        ),
        contributions=contributions(problem, members, evidence=evidence, seed=seed)
        if evidence != "none"
        else (),
        frequency=shares,
        redraws=redraws if shares else 0,
        trace=outcome.trace,
        sizes=tuple(SizeResult(size, o.loss, tuple(names[i] for i in o.members)) for size, o, _ in found)
        if len(found) > 1
        else (),
        objective=problem.objective.name,
        weights=weights,
        estimator=estimates.estimator,
        pool=len(names),
        plan_digest=pool.plan.digest if pool is not None else None,
        flags=(*_flags(estimates, pool), *_missed(problem, members)),
        alerts=tuple(f"release of '{a.client}': {a.reason}" for a in pool.alerts) if pool is not None else (),
    )


def _statement(outcome: Outcome, k: int, status: Status) -> str:
    if status == "interrupted":
        return "The search was interrupted: nothing is proven about this federation."
    if outcome.exhaustive:
        return f"No federation of this size ({k}) has a lower estimated loss: all were evaluated."
    chains = f"; {outcome.agreed} chains of {outcome.chains} agreed" if outcome.chains else ""
    if outcome.local:
        return f"No single swap improves it{chains}."
    return f"The best federation met{chains}; it may not be a local optimum."


def _missed(problem: Problem, members: tuple[int, ...]) -> tuple[str, ...]:
    """Limits of the objective that the answer does not keep: no federation that was met keeps them."""
    missed = getattr(problem.objective, "missed", None)
    if missed is None:
        return ()
    return tuple(f"limit not kept: {miss}" for miss in missed(problem.sums(np.asarray(members))))


def _flags(estimates: Estimates, pool: Pool | None) -> tuple[str, ...]:
    flags = []
    if pool is not None:
        if not pool.private:
            flags.append("not private: the releases carry no noise")
        elif pool.simulated:
            flags.append("simulated: the noise came from a seeded generator and protects nobody")
        elif not pool.charged:
            flags.append(
                "not charged: a release was made without a ledger, so nobody counts what its data cost"
            )
        flags += [f"flagged release of '{flag.client}': {flag.reason}" for flag in pool.flags]
    elif len(estimates.sigmas) == 0 or not np.any(estimates.sigmas > 0):
        flags.append("not private: the estimates carry no noise")
    return tuple(flags)
