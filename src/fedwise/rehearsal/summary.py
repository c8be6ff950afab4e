"""Summary: a rehearsal as a selection carries it: what to expect, beside random federations and everybody."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..search.selection import RehearsedMetric, RehearsedSummary
from .performance import Rehearsed


def summary_of(
    found: Rehearsed, *, goal: str = "", first: Sequence[str] = (), seconds: float | None = None
) -> RehearsedSummary:
    """The metrics asked for and the headline ones of the first federation, and the verdict."""
    others, everyone = found.those("random"), found.those("all")
    metrics = []
    for name in dict.fromkeys([*first, *found.headline()]):
        figure = found.federation.figure(name)
        beside = found.comparison(name) if others else None
        metrics.append(
            RehearsedMetric(
                metric=name,
                value=_known(figure.value) if figure.known else None,
                low=_known(figure.low),
                high=_known(figure.high),
                random=_known(beside.others) if beside is not None else None,
                everyone=_known(everyone[0].value(name)) if everyone else None,
                beside_random=beside.word if beside is not None else "",
            )
        )
    return RehearsedSummary(
        verdict=found.verdict(),
        metrics=tuple(metrics),
        random=len(others),
        stages=len(found.federation.stages),
        shortened=found.shortened,
        goal=goal,
        settings={
            name: found.settings[name]
            for name in ("rounds", "strategy", "model", "lr", "epochs", "batch", "epsilon")
            if name in found.settings
        },
        seconds=seconds,
    )


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
