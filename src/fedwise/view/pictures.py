"""Pictures: the one chart of a value that a notebook shows for ``.plot()``."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

from ..errors import FedwiseError, MissingExtra
from ..estimation import estimate
from ..objective.pfl import Terms, client_terms
from ..pool.pool import Pool
from ..rehearsal.performance import Rehearsed
from ..search.frontiers import Frontier
from ..search.selection import Selection
from ..training.run import Run
from . import charts, outcome_charts
from .outcomes import METRICS, Measure, outcome_of
from .tables import ClientRow, SizeRow


def picture(value: object) -> Any:
    """The picture of a value as an `altair.Chart`."""
    try:
        import altair
    except ImportError:
        raise MissingExtra("a picture", "explore") from None
    return altair.Chart.from_dict(spec_of(value))


@singledispatch
def spec_of(value: object) -> charts.Spec:
    """The Vega-Lite specification of a value's picture."""
    raise FedwiseError(
        f"picture must be of a pool, selection, frontier, run or rehearsal, got {type(value).__name__}"
    )


@spec_of.register
def _(value: Selection) -> charts.Spec:
    """What each member brings; the loss by size where several sizes were searched."""
    if value.sizes:
        return charts.frontier(
            [
                SizeRow(k=p.k, loss=p.loss, terms=None, clients=list(p.clients), chosen=p.k == value.k)
                for p in value.sizes
            ]
        )
    rows = [
        ClientRow(
            client=part.client, chosen=True, records=0.0, terms=value.terms, loss=value.loss,
            leave_one_out=part.leave_one_out, shapley=part.shapley,
        )
        for part in value.contributions
    ]  # fmt: skip
    if not any(row.leave_one_out is not None for row in rows):
        raise FedwiseError("selection must have evidence to be drawn; select again with evidence='quick'")
    return charts.contributions(rows)


@spec_of.register
def _(value: Frontier) -> charts.Spec:
    """The lowest loss of every size."""
    return charts.frontier(
        [SizeRow(k=p.k, loss=p.loss, terms=None, clients=list(p.clients)) for p in value.points]
    )


@spec_of.register
def _(value: Pool) -> charts.Spec:
    """The terms of each client alone."""
    estimates = estimate(value)
    alone = client_terms(estimates)
    losses = alone @ value.plan.weights.signed
    rows = [
        ClientRow(client=name, chosen=False, records=float(total), terms=Terms.of(row), loss=float(loss))
        for name, total, row, loss in zip(estimates.clients, estimates.totals, alone, losses, strict=True)
    ]
    return charts.clients(rows, value.plan.weights)


@spec_of.register
def _(value: Run) -> charts.Spec:
    """AUC over the rounds, or the loss where there is none."""
    found = outcome_of({"this run": value.metrics()})
    if found is None:
        raise FedwiseError(f"run '{value.path}' has no metrics yet; finish it with --resume")
    known = {curve.metric for curve in found.curves}
    metric = next(
        (name for name in ("auc", "macro_auc", "rmse", "loss") if name in known), found.curves[0].metric
    )
    return outcome_charts.curves(found.curves, metric, METRICS[metric])


@spec_of.register
def _(value: Rehearsed) -> charts.Spec:
    """The first headline metric of the federation and of those it is compared with."""
    metric = value.headline()[0]
    rows = []
    for number, one in enumerate(value.performances):
        figure = one.figure(metric)
        label = (
            "this federation"
            if number == 0
            else "all clients"
            if one.role == "all"
            else f"{one.role} {number}"
        )
        rows.append(Measure(label=label, metric=metric, value=figure.value, low=figure.low, high=figure.high))
    return outcome_charts.outcome(rows, metric, METRICS.get(metric, metric))
