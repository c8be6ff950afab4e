"""Report: everything about a selection, as a self-contained page, a JSON object or a notebook cell."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from .. import __version__
from ..auditing.outcome import Audit
from ..errors import MissingExtra
from ..estimation import estimate
from ..estimation.estimates import Estimates
from ..files import write_new
from ..planning import Plan
from ..pool.pool import Pool
from ..search.frontiers import Frontier
from ..search.frontiers import frontier as trace_frontier
from ..search.selection import Selection
from ..view import charts, outcome_charts, tables
from ..view.alerts import Notice
from ..view.checks import Evidence, examine
from ..view.forecasts import forecaster, measures
from ..view.outcomes import GAPS, METRICS, Measure, Runs, TrainingOutcome, outcome_of
from ..view.people import Attribute, attributes_of
from ..view.promise import Promise, TrainingPrivacy, promise_of
from ..view.rehearsals import RehearsalSummary, quick_rehearsal_of, rehearsal_of
from ..view.state_map import Tile, tile_map, tiles
from ..view.subject import Subject, subject_of
from ..view.tables import AlternativeRow, AuditRow, ClientRow, GroupRow, SizeRow
from ..view.trade_offs import TradeOff, of_forecast, of_outcome
from ..view.verdict import SearchSummary, Verdict, search_of, verdict_of
from . import page
from .imprint import Imprint

if TYPE_CHECKING:
    from ..forecasting import Forecaster
    from ..rehearsal.performance import Rehearsed

#: Largest size of the frontier, and the most work (clients × cells) for which it is computed unasked.
LARGEST = 20
_FRONTIER_CELLS = 2_000_000


class ReportValues(msgspec.Struct, frozen=True, kw_only=True):
    """A whole report.

    `alerts` came out of the checks named in `checked`; what is in `unchecked` could not be looked at, and
    nothing is said about it. `missing` are parts of the report that cannot be shown, with what they need.
    """

    title: str
    schema: str
    version: str
    subject: Subject
    missing: list[str]
    verdict: Verdict
    privacy: Promise
    groups: list[GroupRow]
    attributes: list[Attribute]
    clients: list[ClientRow]
    alternatives: list[AlternativeRow]
    frontier: list[SizeRow]
    search: SearchSummary
    trade_offs: list[TradeOff]
    rehearsal: RehearsalSummary | None
    training: TrainingOutcome | None
    audits: list[AuditRow]
    alerts: list[Notice]
    checked: list[str]
    unchecked: list[str]
    tiles: list[Tile]
    commands: list[str]
    digests: dict[str, str]

    @property
    def chosen(self) -> list[ClientRow]:
        """The members, best contribution to the federation first where it is known."""
        return [row for row in self.clients if row.chosen]

    @property
    def rest(self) -> list[ClientRow]:
        """Everyone else."""
        return [row for row in self.clients if not row.chosen]


@dataclass(frozen=True)
class Report:
    """A report. Make one with `Report.of`; shows itself in a notebook."""

    values: ReportValues

    @classmethod
    def of(
        cls,
        pool: Pool | None,
        selection: Selection,
        *,
        runs: Runs | None = None,
        training_privacy: TrainingPrivacy | None = None,
        audits: Iterable[Audit | AuditRow] = (),
        frontier: Frontier | Sequence[SizeRow] | bool = True,
        forecast: Sequence[Measure] | Forecaster | bool = True,
        model: str = "mlp",
        plan: Plan | None = None,
        rehearsal: Rehearsed | None = None,
        differences: Mapping[str, Sequence[str]] | None = None,
        imprint: Imprint | None = None,
    ) -> Report:
        """Everything about a selection.

        Parameters
        ----------
        pool
            The releases it was made from; without them the report tells what the selection itself knows.
        selection
            The answer of `fedwise.select`.
        runs
            Tables of metrics by label, the chosen federation first: see `fedwise.view.outcomes.outcome_of`.
        training_privacy
            Whether the training was private and what it cost; ``not checked`` where it is not given.
        audits
            Outcomes of `fedwise.auditing.audit.audit`.
        frontier
            A frontier already computed; ``True`` to compute one over k where that takes seconds, or ``False``.
        forecast
            What predicts the trained model's metrics, or the metrics; ``True`` to predict them here, or ``False``.
        model
            The trained model, which the prediction follows: ``mlp`` or ``logistic``.
        plan
            The plan of the selection, for a report without releases; another plan is ignored.
        rehearsal
            A training on artificial doubles, shown before the real one.
        differences
            In what the settings of each baseline differ from those of the chosen federation; ``None``: not known.
        imprint
            Heading, who asked, date, command lines and digests.

        Raises
        ------
        FedwiseError
            The selection does not belong to the pool, or a table of metrics cannot be read.
        """
        estimates = estimate(pool, selection.estimator or "shrinkage") if pool is not None else None
        if estimates is not None:
            tables.check_members(estimates, selection)
        if plan is not None and plan.digest != selection.plan_digest:
            plan = None
        evidence = Evidence(
            pool=pool,
            plan=pool.plan if pool is not None else plan,
            estimates=estimates,
            audits=[_audit_row(audit) for audit in audits],
            training=outcome_of(runs) if runs else None,
            training_privacy=training_privacy,
            differences=differences,
        )
        found, shown = _forecast(forecast, estimates, model, selection)
        rehearsed = quick_rehearsal_of(selection, evidence.plan, pool.label if pool is not None else "")
        if rehearsal is not None:
            rehearsed = rehearsal_of(rehearsal, list(selection.clients))
        return cls(
            _values(
                selection,
                evidence,
                frontier=_size_rows(pool, selection, frontier),
                forecast=shown,
                trade_offs=of_forecast(found, selection.clients, seed=selection.seed),
                rehearsal=rehearsed,
                imprint=imprint or Imprint(),
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
            for metric, by in dict.fromkeys((curve.metric, curve.attribute) for curve in v.training.curves):
                name = f"curve-{metric}{_number(v.training, by)}"
                found[name] = outcome_charts.curves(v.training.curves, metric, METRICS[metric], by)
            compared = of_outcome(v.training.final)
            if len(compared) > 1:
                found["trade-off-trained"] = outcome_charts.trade_off(compared)
            for metric, by in dict.fromkeys((m.metric, m.attribute) for m in v.training.final):
                if metric in GAPS:
                    name = f"gap-{metric}{_number(v.training, by)}"
                    found[name] = outcome_charts.outcome(v.training.final, metric, METRICS[metric], by)
        if v.trade_offs:
            found["trade-off"] = outcome_charts.trade_off(v.trade_offs)
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


def _forecast(
    asked: Sequence[Measure] | Forecaster | bool,
    estimates: Estimates | None,
    model: str,
    selection: Selection,
) -> tuple[Forecaster | None, Sequence[Measure]]:
    """What predicts, and the metrics it predicts for the selection."""
    if isinstance(asked, Sequence):
        return None, asked
    if isinstance(asked, bool):
        found = forecaster(estimates, model) if asked and estimates is not None else None
    else:
        found = asked
    return found, measures(found, selection.clients, seed=selection.seed)


def _values(
    selection: Selection,
    evidence: Evidence,
    *,
    frontier: list[SizeRow],
    forecast: Sequence[Measure],
    trade_offs: list[TradeOff],
    rehearsal: RehearsalSummary | None,
    imprint: Imprint,
) -> ReportValues:
    """Everything the page shows."""
    estimates, plan = evidence.estimates, evidence.plan
    names = list(estimates.clients) if estimates is not None else []
    candidates = len(names) or selection.pool
    marks = {
        "Plan": plan.digest if plan is not None else selection.plan_digest or "",
        "fedwise": selection.version,
        "Seed": str(selection.seed),
        **imprint.digests,
    }
    findings = examine(selection, evidence)
    groups = tables.group_rows(estimates, selection, seed=selection.seed) if estimates is not None else []
    promise = promise_of(evidence.pool, selection, plan=plan, training=evidence.shown_training_privacy)
    return ReportValues(
        title=imprint.title or f"{selection.k} of {candidates} clients chosen",
        schema=plan.schema.name if plan is not None else "",
        version=__version__,
        subject=subject_of(
            plan,
            label=promise.label,
            asked_by=imprint.asked_by,
            date=imprint.date or datetime.now(UTC).date().isoformat(),
            made_with=__version__,
            selected_with=selection.version,
        ),
        missing=_missing(evidence, rehearsal),
        verdict=msgspec.structs.replace(verdict_of(selection, candidates, groups), forecast=list(forecast)),
        privacy=promise,
        groups=groups,
        attributes=attributes_of(estimates, tables.positions(estimates, selection.clients))
        if estimates is not None
        else [],
        clients=tables.client_rows(estimates, selection) if estimates is not None else [],
        alternatives=tables.alternative_rows(selection),
        frontier=frontier,
        search=search_of(selection),
        trade_offs=trade_offs,
        rehearsal=rehearsal,
        training=evidence.training,
        audits=evidence.audits,
        alerts=findings.alerts,
        checked=findings.checked,
        unchecked=findings.unchecked,
        tiles=tiles(names, selection.clients),
        commands=list(imprint.commands),
        digests={name: value for name, value in marks.items() if value},
    )


def _missing(evidence: Evidence, rehearsal: RehearsalSummary | None) -> list[str]:
    """Parts of a report that cannot be shown here, with what would bring them."""
    found = []
    if evidence.pool is None:
        found.append(
            "The releases are not part of this report: clients, groups of people, reasons, sizes and the forecast are "
            "not shown, and what left the clients was not checked. Name them with --releases."
        )
    if evidence.plan is None:
        found.append("The plan is not part of this report: target, columns, ε and δ are not shown.")
    if evidence.training is None and rehearsal is None:
        found.append("Nothing was trained or rehearsed here.")
    if not evidence.audits:
        found.append("No audit attacked these releases.")
    return found


def _number(training: TrainingOutcome, attribute: str) -> str:
    """Part of a chart's name: nothing for all rows and for the first attribute, then -2, -3, …"""
    place = training.attributes.index(attribute) if attribute else 0
    return f"-{place + 1}" if place else ""


def _size_rows(
    pool: Pool | None, selection: Selection, frontier: Frontier | Sequence[SizeRow] | bool
) -> list[SizeRow]:
    """Best loss by size: the frontier given, one computed here, or the sizes the selection itself searched."""
    if frontier is True and pool is not None and selection.objective == "pfl" and _quick(pool):
        largest = min(max(LARGEST, selection.k + 5), len(pool.clients))
        frontier = trace_frontier(
            pool, (1, largest), weights=selection.weights, estimator=selection.estimator or "shrinkage",
            method="annealing", seed=selection.seed,
        )  # fmt: skip
    if isinstance(frontier, Frontier):
        points = [
            SizeRow(k=p.k, loss=p.loss, terms=p.terms, clients=list(p.clients), chosen=p.k == selection.k)
            for p in frontier.points
        ]
    elif not isinstance(frontier, bool):
        points = list(frontier)
    else:
        points = [
            SizeRow(k=p.k, loss=p.loss, terms=None, clients=list(p.clients), chosen=p.k == selection.k)
            for p in selection.sizes
        ]
    chosen = SizeRow(
        k=selection.k,
        loss=selection.loss,
        terms=selection.terms,
        clients=list(selection.clients),
        chosen=True,
    )
    # At the chosen size the selection itself counts: it was made under its constraints.
    return sorted([p for p in points if p.k != selection.k] + [chosen], key=lambda p: p.k) if points else []


def _quick(pool: Pool) -> bool:
    return pool.matrix.size <= _FRONTIER_CELLS


def _audit_row(audit: Audit | AuditRow) -> AuditRow:
    return AuditRow(**{name: getattr(audit, name) for name in AuditRow.__struct_fields__})


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
