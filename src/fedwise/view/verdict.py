"""Verdict: the federation chosen, how sure one may be of it, and how the search went."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from ..certificate import Assumption, members_changed
from ..objective.pfl import Terms, Weights
from ..search.selection import Selection
from .outcomes import Measure
from .tables import GroupRow

#: Loss at stake over what the choice gains on random federations: below the first the noise hardly matters, above
#: the second the choice is hardly better than chance.
_HARDLY, _MOSTLY = 0.1, 0.5


class NoiseVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the privacy noise does to the choice: a few words, and the measurement behind them in a sentence.

    `level` is ``good`` where it hardly matters, ``fair`` where it decides some members, ``poor`` where the choice is
    hardly better than chance, and ``unknown`` where it was not measured.
    """

    level: Literal["good", "fair", "poor", "unknown"]
    head: str
    text: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The federation, its loss, what is proved about it and what the noise leaves open.

    `paper` is what the paper's bounds say, and `assumptions` what they rest on; empty unless they were asked for.
    """

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
    paper: list[str]
    forecast: list[Measure]
    interval: str = ""
    noise: NoiseVerdict | None = None


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


def noise_verdict(selection: Selection, groups: Sequence[GroupRow] = ()) -> NoiseVerdict:
    """One plain verdict on the noise, from redraws of it and from what is left open about single swaps.

    Parameters
    ----------
    groups
        The chosen federation and random ones, where the releases are at hand: what the choice gains.
    """
    found, k = selection.certificate, selection.k
    if "not private" in {flag.partition(":")[0] for flag in selection.flags}:
        return NoiseVerdict(
            level="good",
            head="No noise",
            text="The tables are exact, so noise changes nothing. Nothing is private.",
        )
    if found.redraw_changes is None or found.redraw_regret_bound is None or found.redraw_regret is None:
        return NoiseVerdict(
            level="unknown",
            head="Not measured",
            text="How much the noise decided was not measured: select again with --evidence full, without an objective "
            "of your own.",
        )
    members = members_changed(found.redraw_changes, k)
    times = (
        f"95% of {selection.redraws} redraws"
        if selection.redraws >= 20
        else f"all {selection.redraws} redraws"
    )
    text = (
        f"An honest redraw of the noise changes {members}; the federation then chosen is worse by "
        f"{found.redraw_regret:.2g} on average and by at most {found.redraw_regret_bound:.2g} in {times}."
    )
    if found.regret_bound is not None:
        text += (
            f" With a chance of 90% the true loss is within {found.regret_bound:.2g} of the best single swap."
        )
    at_stake = max(found.redraw_regret_bound, found.regret_bound or 0.0)
    random = next((group for group in groups if "random" in group.name), None)
    if random is None:
        level: Literal["good", "fair"] = "good" if found.redraw_changes == 0 else "fair"
        head = "The noise changes nothing" if level == "good" else "The noise decides some members"
        return NoiseVerdict(level=level, head=head, text=text)
    gain = random.loss - selection.terms.loss(selection.weights)
    share = at_stake / gain if gain > 0 else math.inf
    if math.isfinite(share):
        text += f" Random federations are worse by {gain:.2g} on average: {min(share, 1):.0%} of that is at stake."
    if share >= _MOSTLY:
        return NoiseVerdict(
            level="poor", head="The noise decides: hardly better than a random choice", text=text
        )
    if share >= _HARDLY:
        return NoiseVerdict(level="fair", head="The noise decides some members", text=text)
    return NoiseVerdict(level="good", head="The noise hardly matters", text=text)


def verdict_of(selection: Selection, candidates: int, groups: Sequence[GroupRow] = ()) -> Verdict:
    """The federation, its loss, and what is known about it."""
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
        noise_statement=selection.certificate.left_open,
        assumptions=list(selection.certificate.assumptions),
        paper=list(selection.certificate.paper),
        forecast=[],
        interval=selection.interval_text,
        noise=noise_verdict(selection, groups),
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
