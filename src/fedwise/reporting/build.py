"""Build: values and charts become one self-contained page, one JSON object, or a notebook cell."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from .. import __version__
from ..auditing.audit import Audit
from ..errors import MissingExtra
from ..estimation import estimate
from ..files import write_new
from ..pool.pool import Pool
from ..search.frontier import Frontier
from ..search.frontier import frontier as trace_frontier
from ..search.selection import Selection
from . import charts, gather, outcome_charts, page
from .alerts import alerts
from .forecast import forecaster, measures
from .map_chart import tile_map
from .training import GAPS, METRICS, Runs, training
from .values import AuditValue, Measure, Point, Values

#: Largest size of the frontier, and the most work (clients × cells) for which it is computed unasked.
LARGEST = 20
_FRONTIER_CELLS = 2_000_000


@dataclass(frozen=True)
class Report:
    """A report. Make one with `Report.of`; shows itself in a notebook."""

    values: Values

    @classmethod
    def of(
        cls,
        pool: Pool | None,
        selection: Selection,
        *,
        runs: Runs | None = None,
        audits: Iterable[Audit | AuditValue] = (),
        frontier: Frontier | Sequence[Point] | bool = True,
        forecast: Sequence[Measure] | bool = True,
        model: str = "mlp",
        commands: Sequence[str] = (),
        privacy_notes: Sequence[str] = (),
        digests: Mapping[str, str] | None = None,
        title: str | None = None,
    ) -> Report:
        """Everything about a selection.

        Parameters
        ----------
        pool
            The releases it was made from; without them the report tells what the selection itself knows.
        selection
            The answer of `fedwise.select`.
        runs
            Tables of metrics by label, the chosen federation first: see `fedwise.reporting.training.training`.
        audits
            Outcomes of `fedwise.auditing.audit.audit`.
        frontier
            A frontier already computed; ``True`` to compute one over k where that takes a moment, or ``False``.
        forecast
            Predicted metrics of the trained model; ``True`` to predict them here, or ``False``.
        model
            The trained model, which the prediction follows: ``mlp`` or ``logistic``.
        commands
            The command lines that lead here.
        privacy_notes
            What training cost, in sentences.
        digests
            Further names and digests for the last section.

        Raises
        ------
        FedwiseError
            The selection does not belong to the pool, or a table of metrics cannot be read.
        """
        estimates = estimate(pool, selection.estimator or "shrinkage") if pool is not None else None
        if estimates is not None:
            gather.check_members(estimates, selection)
        shown = [_audit_value(audit) for audit in audits]
        outcome = training(runs) if runs else None
        names = list(estimates.clients) if estimates is not None else []
        points = _points(pool, selection, frontier)
        what = f"{selection.k} of {len(names) or selection.pool} clients"
        if isinstance(forecast, bool):
            found = forecaster(estimates, model) if forecast and estimates is not None else None
            forecast = measures(found, selection.clients, seed=selection.seed)
        verdict = gather.verdict(selection, len(names) or selection.pool)
        marks = {
            "Plan": pool.plan.digest if pool else selection.plan_digest or "",
            "fedwise": selection.version,
        }
        marks |= {"Seed": str(selection.seed), **(digests or {})}
        return cls(
            Values(
                title=title or f"{what} chosen",
                schema=pool.plan.schema.name if pool else "",
                version=__version__,
                verdict=msgspec.structs.replace(verdict, forecast=list(forecast)),
                privacy=gather.privacy(
                    pool.plan if pool else None,
                    simulated=bool(pool and pool.simulated),
                    training=privacy_notes,
                ),
                groups=gather.groups(estimates, selection, seed=selection.seed) if estimates else [],
                clients=gather.clients(estimates, selection) if estimates else [],
                alternatives=gather.alternatives(selection),
                frontier=points,
                search=gather.search(selection),
                training=outcome,
                audits=shown,
                alerts=alerts(selection, pool=pool, estimates=estimates, audits=shown, training=outcome),
                tiles=gather.tiles(names, selection.clients),
                commands=list(commands),
                digests={name: value for name, value in marks.items() if value},
            )
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything the page shows, as plain values ready for JSON. A number that is not finite becomes null."""
        plain: dict[str, Any] = _finite(msgspec.to_builtins(self.values))
        return plain

    @cached_property
    def specs(self) -> dict[str, charts.Spec]:
        """Vega-Lite specification of every chart that has something to show, by name."""
        v = self.values
        found: dict[str, charts.Spec] = {}
        if v.groups:
            found["groups"] = charts.groups(v.groups, v.verdict.weights)
        if v.tiles:
            found["map"] = tile_map(v.tiles)
        if v.clients:
            found["clients"] = charts.clients(v.clients, v.verdict.weights, limit=page.SHOWN)
        if any(row.leave_one_out is not None for row in v.chosen):
            found["contributions"] = charts.contributions(v.clients)
        if any(row.frequency is not None for row in v.clients):
            found["frequency"] = charts.frequency(v.clients)
        if len(v.frontier) > 1:
            found["frontier"] = charts.frontier(v.frontier)
        if len(v.search.trace) > 1:
            found["trace"] = charts.trace(v.search.trace)
        if v.training is not None:
            for metric in {curve.metric for curve in v.training.curves}:
                found[f"curve-{metric}"] = outcome_charts.curves(v.training.curves, metric, METRICS[metric])
            for metric in GAPS:
                if any(measure.metric == metric for measure in v.training.final):
                    found[f"gap-{metric}"] = outcome_charts.outcome(v.training.final, metric, METRICS[metric])
        if v.audits:
            found["audit"] = outcome_charts.audit(v.audits)
        return found

    def chart(self, name: str) -> Any:
        """One chart as an `altair.Chart`, for a notebook."""
        try:
            import altair
        except ImportError:
            raise MissingExtra("charts in a notebook", "explore") from None
        return altair.Chart.from_dict(self.specs[name])

    def html(self) -> str:
        """The whole page: one file, no script, nothing fetched."""
        return page.whole(self.values, self.specs)

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the page."""
        write_new(Path(path), self.html().encode(), force=force)

    def _repr_html_(self) -> str:
        return page.cell(self.values, self.specs)


def _points(
    pool: Pool | None, selection: Selection, frontier: Frontier | Sequence[Point] | bool
) -> list[Point]:
    """Best loss by size: the frontier given, one computed here, or the sizes the selection itself searched."""
    if frontier is True and pool is not None and selection.objective == "pfl" and _quick(pool):
        largest = min(max(LARGEST, selection.k + 5), len(pool.clients))
        frontier = trace_frontier(
            pool, (1, largest), weights=selection.weights, estimator=selection.estimator or "shrinkage",
            method="annealing", seed=selection.seed,
        )  # fmt: skip
    if isinstance(frontier, Frontier):
        points = [
            Point(k=p.k, loss=p.loss, terms=p.terms, clients=list(p.clients), chosen=p.k == selection.k)
            for p in frontier.points
        ]
    elif not isinstance(frontier, bool):
        points = list(frontier)
    else:
        points = [
            Point(k=p.k, loss=p.loss, terms=None, clients=list(p.clients), chosen=p.k == selection.k)
            for p in selection.sizes
        ]
    chosen = Point(
        k=selection.k,
        loss=selection.loss,
        terms=selection.terms,
        clients=list(selection.clients),
        chosen=True,
    )
    # At the chosen size the selection itself is the truth, constraints and all.
    return sorted([p for p in points if p.k != selection.k] + [chosen], key=lambda p: p.k) if points else []


def _quick(pool: Pool) -> bool:
    return pool.matrix.size <= _FRONTIER_CELLS


def _audit_value(audit: Audit | AuditValue) -> AuditValue:
    return AuditValue(**{name: getattr(audit, name) for name in AuditValue.__struct_fields__})


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
