"""Verdict: the federation chosen, how sure one may be of it, and how the search went."""

from __future__ import annotations

import math

import msgspec

from ..certificate import Assumption
from ..objective.pfl import Terms, Weights
from ..search.selection import Selection
from .outcomes import Measure


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The federation, its loss and how sure we are."""

    clients: list[str]
    k: int
    candidates: int
    loss: float
    std_error: float | None
    terms: Terms
    weights: Weights
    objective: str
    estimator: str
    method: str
    status: str
    statement: str
    noise_statement: str
    assumptions: list[Assumption]
    forecast: list[Measure]
    interval: str = ""


class SearchSummary(msgspec.Struct, frozen=True, kw_only=True):
    """How the search went."""

    method: str
    status: str
    evaluations: int
    seconds: float
    seed: int | None
    chains: int | None
    agreed: int | None
    trace: list[tuple[int, float]]


def verdict_of(selection: Selection, candidates: int) -> Verdict:
    """The federation, its loss and its certificate."""
    return Verdict(
        clients=list(selection.clients),
        k=selection.k,
        candidates=candidates,
        loss=selection.loss,
        std_error=selection.std_error,
        terms=selection.terms,
        weights=selection.weights,
        objective=selection.objective,
        estimator=selection.estimator,
        method=selection.method,
        status=selection.status,
        statement=selection.certificate.statement,
        noise_statement=selection.certificate.noise_statement,
        assumptions=list(selection.certificate.assumptions),
        forecast=[],
        interval=selection.interval_text,
    )


def search_of(selection: Selection) -> SearchSummary:
    """How the search went."""
    return SearchSummary(
        method=selection.method,
        status=selection.sentence,
        evaluations=selection.evaluations,
        seconds=selection.seconds,
        seed=selection.seed,
        chains=selection.chains or None,
        agreed=selection.agreed if selection.chains else None,
        trace=[(int(n), float(loss)) for n, loss in selection.trace if math.isfinite(loss)],
    )
