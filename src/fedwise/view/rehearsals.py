"""Rehearsals: a training on artificial doubles, as a report shows it beside the real one."""

from __future__ import annotations

import math

import msgspec

from ..objective.metric import parse
from ..rehearsal.performance import INTERVAL, Rehearsed


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
    mine, everyone = found.federation, found.those("all")
    rows = []
    for name in found.headline():
        figure = mine.figure(name)
        beside = found.comparison(name) if found.those("random") else None
        rows.append(
            RehearsalRow(
                title=parse(name).label,
                metric=name,
                value=_known(figure.value),
                low=_known(figure.low),
                high=_known(figure.high),
                random=_known(beside.others) if beside is not None else None,
                everyone=_known(everyone[0].value(name)) if everyone else None,
                word=beside.word if beside is not None else "not compared",
            )
        )
    return RehearsalSummary(
        clients=list(mine.clients),
        verdict=found.verdict(),
        intervals=INTERVAL,
        label=found.label,
        epsilon=found.epsilon,
        settings=[
            f"{key} {value}" for key, value in found.settings.items() if isinstance(value, str | int | float)
        ],
        rows=rows,
        same=sorted(mine.clients) == sorted(chosen),
    )


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
