"""Subject: what a report is about. The task, its rules and columns, who asked, when, and with which version."""

from __future__ import annotations

import msgspec

from ..planning import Plan
from ..schema.column import Column
from ..schema.schema import Schema

#: Said where something is not written down anywhere.
NOT_RECORDED = "not recorded"
NOT_CHECKED = "not checked: neither the plan nor the releases are part of this report"
#: Levels that are listed one by one.
_LISTED = 8


class ColumnLine(msgspec.Struct, frozen=True, kw_only=True):
    """One column in words: its name, and its public domain."""

    name: str
    domain: str
    size: int


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What a report is about. Where the plan is not at hand, `known` is false and the columns are empty."""

    known: bool
    task: str
    target: str
    filters: list[str]
    features: list[ColumnLine]
    sensitive: list[ColumnLine]
    asked_by: str
    date: str
    made_with: str
    selected_with: str
    label: str

    @property
    def attributes(self) -> list[str]:
        """Names of the sensitive attributes."""
        return [line.name for line in self.sensitive]


def subject_of(
    plan: Plan | None,
    *,
    label: str,
    asked_by: str = "",
    date: str = "",
    made_with: str = "",
    selected_with: str = "",
    schema: Schema | None = None,
) -> Subject:
    """What a report is about, from the plan, or from the schema of a run where there is no plan."""
    found = plan.as_pairs.schema if plan is not None else schema
    return Subject(
        known=found is not None,
        task=found.name if found is not None else "",
        target="; ".join(target_text(found.columns[i]) for i in found.targets)
        if found is not None
        else NOT_CHECKED,
        filters=list(found.where) if found is not None else [],
        features=[_line(found.columns[i]) for i in found.features] if found is not None else [],
        sensitive=[_line(found.columns[i]) for i in found.sensitive] if found is not None else [],
        asked_by=asked_by or NOT_RECORDED,
        date=date or NOT_RECORDED,
        made_with=made_with,
        selected_with=selected_with or NOT_RECORDED,
        label=label,
    )


def target_text(column: Column) -> str:
    """What the model shall predict: ``RICH: INCOME > 50000``."""
    return f"{column.name}: {column.rule if column.rule is not None else _domain(column)}"


def _line(column: Column) -> ColumnLine:
    return ColumnLine(name=column.name, domain=_domain(column), size=column.size)


def _domain(column: Column) -> str:
    """The public domain: its rule, its range, or its levels."""
    other = ", or other" if column.has_other else ""
    if column.rule is not None:
        return column.rule + other
    if column.bins is not None:
        ends = f"{column.bins[0]:g} to {column.bins[-1]:g}"
        return f"{ends} in {len(column.bins) - 1} intervals{other}"
    levels = [str(level) for level in column.levels or ()]
    if len(levels) > _LISTED:
        return f"{len(levels)} levels{other}"
    return ", ".join(levels) + other
