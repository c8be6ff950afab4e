"""Rehearsals: a training on artificial doubles, as a report shows it beside the real one."""

from __future__ import annotations

import msgspec

from ..objective.metric import parse
from ..rehearsal.performance import INTERVAL, Rehearsed
from ..rehearsal.summary import summary_of


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
    """A rehearsal: whose, how it compares in one sentence, and its metrics."""

    clients: list[str]
    verdict: str
    intervals: str
    label: str
    epsilon: float | None
    settings: list[str]
    rows: list[RehearsalRow]
    same: bool


def rehearsal_of(found: Rehearsed, chosen: list[str]) -> RehearsalSummary:
    """What a report shows of a rehearsal. `same` says whether the chosen federation was the one rehearsed."""
    mine, headline = found.federation, summary_of(found)
    rows = [
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
        for one in headline.metrics
    ]
    return RehearsalSummary(
        clients=list(mine.clients),
        verdict=headline.verdict,
        intervals=INTERVAL,
        label=found.label,
        epsilon=found.epsilon,
        settings=[
            f"{key} {value}" for key, value in found.settings.items() if isinstance(value, str | int | float)
        ],
        rows=rows,
        same=sorted(mine.clients) == sorted(chosen),
    )
