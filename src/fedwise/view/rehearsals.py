"""Rehearsals: a training on artificial doubles, as a report shows it beside the real one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ..objective.metric import parse
from ..planning import Plan
from ..rehearsal.performance import INTERVAL, Rehearsed
from ..rehearsal.summary import summary_of
from ..search.selection import RehearsedSummary, Selection


class RehearsalRow(msgspec.Struct, frozen=True, kw_only=True):
    """One metric: what to expect of the federation, of random ones and of all clients. ``None``: not known."""

    title: str
    metric: str
    value: float | None
    low: float | None
    high: float | None
    random: float | None
    everyone: float | None
    word: str


class RehearsalSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A rehearsal: whose, how it compares in one sentence, and its metrics.

    `quick`: of a training shorter than the real one, whose levels it cannot tell.
    """

    clients: list[str]
    verdict: str
    intervals: str
    label: str
    epsilon: float | None
    settings: list[str]
    rows: list[RehearsalRow]
    same: bool
    quick: bool = False


def rehearsal_of(found: Rehearsed, chosen: list[str]) -> RehearsalSummary:
    """What a report shows of a rehearsal. `same` says whether the chosen federation was the one rehearsed."""
    mine, headline = found.federation, summary_of(found)
    return RehearsalSummary(
        clients=list(mine.clients),
        verdict=headline.verdict,
        intervals=INTERVAL,
        label=found.label,
        epsilon=found.epsilon,
        settings=_settings(found.settings),
        rows=_rows(headline),
        same=sorted(mine.clients) == sorted(chosen),
    )


def quick_rehearsal_of(selection: Selection, plan: Plan | None, label: str) -> RehearsalSummary | None:
    """The quick rehearsal that a selection carries, where no other is at hand."""
    found = selection.rehearsal
    if found is None:
        return None
    return RehearsalSummary(
        clients=list(selection.clients),
        verdict=found.verdict,
        intervals=INTERVAL,
        label=label,
        epsilon=plan.epsilon if plan is not None else None,
        settings=_settings(found.settings),
        rows=_rows(found),
        same=True,
        quick=found.shortened,
    )


def _rows(found: RehearsedSummary) -> list[RehearsalRow]:
    return [
        RehearsalRow(
            title=parse(one.metric).label,
            metric=one.metric,
            value=one.value,
            low=one.low,
            high=one.high,
            random=one.random,
            everyone=one.everyone,
            word=one.beside_random or "not compared",
        )
        for one in found.metrics
    ]


def _settings(settings: Mapping[str, Any]) -> list[str]:
    return [f"{key} {value}" for key, value in settings.items() if isinstance(value, str | int | float)]
