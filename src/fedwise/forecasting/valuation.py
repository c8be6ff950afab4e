"""Valuation: what each client brings to a federation's forecast, and what fairness costs in accuracy."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from ..errors import FedwiseError
from ..search.constraints import Constraints
from ..search.control import Control, Progress
from ..search.feasible import check
from ..search.methods import resolve_method
from ..search.outcome import Method
from ..search.point import undominated
from ..search.problem import Problem
from ..search.shapley import sample_shapley
from .forecaster import Forecaster
from .members import Federation
from .metrics import check_name
from .objective import Forecast

Floats = npt.NDArray[np.float64]


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """What one client brings to a metric of a federation.

    `leave_one_out` is the metric with the client minus without it. `shapley` is its mean effect over
    random orders of joining, from the pool's own model as the empty federation; over all members it
    sums to the federation's metric minus that model's. `std_error` is of the sampling of orders.
    """

    client: str
    leave_one_out: float
    shapley: float
    std_error: float


class TradeOff(msgspec.Struct, frozen=True, kw_only=True):
    """A federation that no other one found beats on both metrics."""

    clients: tuple[str, ...]
    value: float
    gap: float
    metrics: dict[str, float]


def effects(
    forecaster: Forecaster,
    federation: Federation,
    *,
    metric: str = "balanced_accuracy",
    orders: int = 200,
    seed: int = 0,
) -> tuple[Effect, ...]:
    """Effect of every member on one forecast metric, largest Shapley value first.

    Parameters
    ----------
    orders
        Random orders of joining; each is used forward and backward, which cancels much of its noise.
    """
    check_name(metric)
    if orders < 2:
        raise FedwiseError(f"orders must be at least 2, got {orders}")
    members = forecaster.positions(federation)
    rows = forecaster.rows[members]
    total = rows.sum(axis=0)
    nothing = np.zeros((1, rows.shape[1]))

    def value(sums: Floats) -> Floats:
        return forecaster.values(sums, (metric,))[:, 0]

    whole = float(value(total[None])[0])
    without = value(total - rows) if len(members) > 1 else value(nothing)
    means, errors = sample_shapley(
        lambda paths: np.stack([value(np.cumsum(rows[path], axis=0)) for path in paths]),
        len(members),
        orders=orders,
        rng=np.random.default_rng(seed),
        empty=float(value(nothing)[0]),
        mirrored=True,
    )
    found = [
        Effect(
            client=forecaster.estimates.clients[i],
            leave_one_out=whole - float(without[m]),
            shapley=float(means[m]),
            std_error=float(errors[m]),
        )
        for m, i in enumerate(members)
    ]
    return tuple(sorted(found, key=lambda effect: (-effect.shapley, effect.client)))


def front(
    forecaster: Forecaster,
    k: int,
    *,
    metric: str = "balanced_accuracy",
    gap: str = "spd",
    limits: Sequence[float] | None = None,
    points: int = 8,
    method: Method | str = "auto",
    constraints: Constraints | None = None,
    seed: int = 0,
    threads: int | None = None,
    progress: Progress | None = None,
) -> tuple[TradeOff, ...]:
    """Best `metric` for a falling limit on `gap`, at size `k`: smallest gap first, none dominated.

    A limit, unlike a weighted sum, also reaches points where the front is not convex. ``metric="auc"`` with
    ``gap="eod@rate"`` is the front that no threshold and no label rate has a part in.

    Parameters
    ----------
    metric, gap
        Metrics by name, as in `Forecast`; the gap is one of ``spd`` and ``eod``, at ½ or with ``@rate``.
    limits
        Limits on the gap; default `points` of them, evenly spaced from the gap of the federation best
        in `metric` down to the least gap found.
    """
    check_name(metric)
    if not check_name(gap, what="gap").compares_groups:
        raise FedwiseError(f"gap must be one of spd, eod, spd@rate and eod@rate, got '{gap}'")
    if points < 2:
        raise FedwiseError(f"points must be at least 2, got {points}")
    estimates = forecaster.estimates
    resolved = check(constraints or Constraints(), estimates.clients, estimates.totals, k)
    met: set[tuple[int, ...]] = set()
    with Control(threads=threads, progress=progress) as control:

        def best(objective: Forecast) -> tuple[int, ...]:
            problem = Problem.of(estimates, objective)
            used = resolve_method(method, problem, points * 1_000_000)
            outcome = used.search(problem, resolved, k, seed=seed, control=control)
            met.add(outcome.members)
            met.update(members for _, members in outcome.ranked)
            return outcome.members

        def search() -> None:
            ends = [best(Forecast.of(forecaster, goal)) for goal in (metric, gap)]
            if limits is None:
                high, low = (_values(forecaster, [end], (gap,))[0, 0] for end in ends)
                wanted: Sequence[float] = np.linspace(high, low, points + 1)[1:-1].tolist()
            else:
                wanted = limits
            for limit in wanted:
                if control.stopped():
                    return
                best(Forecast.of(forecaster, metric, subject_to={gap: limit}))

        control.run(search)
    return _undominated(forecaster, sorted(met), metric, gap)


def _values(forecaster: Forecaster, federations: Sequence[tuple[int, ...]], names: Sequence[str]) -> Floats:
    sums = np.stack([forecaster.rows[list(members)].sum(axis=0) for members in federations])
    return forecaster.values(sums, names)


def _undominated(
    forecaster: Forecaster, met: Sequence[tuple[int, ...]], metric: str, gap: str
) -> tuple[TradeOff, ...]:
    quick = forecaster.quick
    names = (*quick, *(name for name in dict.fromkeys((metric, gap)) if name not in quick))
    values = _values(forecaster, met, names)
    sign = 1.0 if check_name(metric).larger_is_better else -1.0
    value, width = sign * values[:, names.index(metric)], values[:, names.index(gap)]
    front = undominated(range(len(met)), cost=lambda i: float(width[i]), gain=lambda i: float(value[i]))
    return tuple(
        TradeOff(
            clients=tuple(forecaster.estimates.clients[m] for m in met[i]),
            value=float(sign * value[i]),
            gap=float(width[i]),
            metrics=dict(zip(names, values[i].tolist(), strict=True)),
        )
        for i in front
    )
