"""Tables: a selection and its pool in, the rows of every table and bar chart out.

Only released, estimated or aggregate numbers have a place here; there is no field for an exact count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from ..errors import FedwiseError
from ..estimation.estimates import Estimates
from ..objective.pfl import Terms, Weights, client_terms, federation_terms
from ..search.problem import PFL, Problem
from ..search.selection import Selection

Floats = npt.NDArray[np.float64]

#: Random federations the chosen one is compared with, and the most exchanges looked at one by one.
RANDOM = 200
MOST_SWAPS = 300_000


class ClientRow(msgspec.Struct, frozen=True, kw_only=True):
    """One client as the releases show it.

    `terms` and `loss` are those of the client alone. `leave_one_out` and `shapley` say what a member does to
    the federation's loss (negative helps). `swap` is the change of that loss by the best exchange that brings
    this outsider in, for the member `swap_for`.
    """

    client: str
    chosen: bool
    records: float
    terms: Terms
    loss: float
    leave_one_out: float | None = None
    shapley: float | None = None
    frequency: float | None = None
    swap: float | None = None
    swap_for: str | None = None


class GroupRow(msgspec.Struct, frozen=True, kw_only=True):
    """Terms of a federation, or the mean of several."""

    name: str
    terms: Terms
    loss: float
    low: float | None = None
    high: float | None = None


class AlternativeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A good federation that was not chosen: who joins, who leaves, at what price."""

    clients: list[str]
    joins: list[str]
    leaves: list[str]
    loss: float
    gap: float


class SizeRow(msgspec.Struct, frozen=True, kw_only=True):
    """Best federation of one size."""

    k: int
    loss: float
    terms: Terms | None
    clients: list[str]
    chosen: bool = False


class AuditRow(msgspec.Struct, frozen=True, kw_only=True):
    """One membership attack."""

    epsilon: float | Literal["inf"]
    attack: str
    trials: int
    auc: float
    auc_std_error: float
    auc_theory: float
    tpr_at_1_percent: float
    tpr_theory: float
    epsilon_lower_bound: float
    ok: bool
    findings: list[str] = []

    @property
    def target(self) -> str:
        """What was attacked, in words."""
        return {"joint": "all tables", "single": "one table", "release": "whole releases"}.get(
            self.attack, self.attack
        )


def client_rows(estimates: Estimates, selection: Selection) -> list[ClientRow]:
    """Every client: its own terms, its part in the federation or the price of bringing it in."""
    alone = client_terms(estimates)
    losses = alone @ selection.weights.signed
    parts = {part.client: part for part in selection.contributions}
    chosen = set(selection.clients)
    swaps = best_swaps_in(estimates, selection)
    rows = []
    for i, name in enumerate(estimates.clients):
        part = parts.get(name)
        price, partner = swaps.get(name, (None, None))
        rows.append(
            ClientRow(
                client=name,
                chosen=name in chosen,
                records=float(estimates.totals[i]),
                terms=Terms.of(alone[i]),
                loss=float(losses[i]),
                leave_one_out=part.leave_one_out if part else None,
                shapley=part.shapley if part else None,
                frequency=selection.frequency.get(name, 0.0) if selection.frequency else None,
                swap=price,
                swap_for=partner,
            )
        )
    return rows


def check_members(estimates: Estimates, selection: Selection) -> None:
    """Refuse a selection of another pool."""
    strangers = sorted(set(selection.clients) - set(estimates.clients))
    if strangers:
        raise FedwiseError(
            f"selection must come from these releases, but '{strangers[0]}' is not among them; "
            "name the directory the selection was made from"
        )


def best_swaps_in(estimates: Estimates, selection: Selection) -> dict[str, tuple[float, str]]:
    """For each outsider the best exchange with a member: change of the loss, and who would leave."""
    members = positions(estimates, selection.clients)
    outsiders = np.setdiff1d(np.arange(len(estimates.clients)), members)
    if selection.objective != "pfl" or len(members) * len(outsiders) > MOST_SWAPS:
        return {}
    problem = Problem.of(estimates, PFL(selection.weights))
    table = np.stack(
        [problem.joined(problem.sums(np.delete(members, m)), outsiders) for m in range(len(members))]
    )
    best = table.argmin(axis=0)
    now = problem.loss(members)
    return {
        estimates.clients[o]: (float(table[best[i], i] - now), estimates.clients[members[best[i]]])
        for i, o in enumerate(outsiders)
    }


def group_rows(estimates: Estimates, selection: Selection, *, seed: int = 0) -> list[GroupRow]:
    """The chosen federation, random ones of its size (mean, and the middle 90% of losses), and everyone."""
    weights, k, n = selection.weights, selection.k, len(estimates.clients)
    found = [GroupRow(name="Chosen federation", terms=selection.terms, loss=selection.terms.loss(weights))]
    if k < n:
        rng = np.random.default_rng([seed, 17])
        drawn = np.stack([rng.choice(n, size=k, replace=False) for _ in range(RANDOM)])
        found.append(_mean(f"{RANDOM} random federations", federation_terms(estimates, drawn), weights))
        everyone = federation_terms(estimates, np.arange(n)[None, :])[0]
        found.append(
            GroupRow(name="All clients", terms=Terms.of(everyone), loss=float(everyone @ weights.signed))
        )
    return found


def _mean(name: str, table: Floats, weights: Weights) -> GroupRow:
    losses = table @ weights.signed
    low, high = np.quantile(losses, [0.05, 0.95])
    return GroupRow(
        name=name,
        terms=Terms.of(table.mean(axis=0)),
        loss=float(losses.mean()),
        low=float(low),
        high=float(high),
    )


def alternative_rows(selection: Selection) -> list[AlternativeRow]:
    """Good federations that were not chosen."""
    chosen = set(selection.clients)
    return [
        AlternativeRow(
            clients=list(other.clients),
            joins=sorted(set(other.clients) - chosen),
            leaves=sorted(chosen - set(other.clients)),
            loss=other.loss,
            gap=other.gap,
        )
        for other in selection.alternatives
    ]


def positions(estimates: Estimates, names: Sequence[str]) -> npt.NDArray[np.int64]:
    """Rows of the named clients, sorted."""
    at = {name: i for i, name in enumerate(estimates.clients)}
    return np.array(sorted(at[name] for name in names), dtype=np.int64)
