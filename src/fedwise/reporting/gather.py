"""Gather: a selection and its pool in, the values of a report out."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..data.states import BY_USPS, FIFTY, State
from ..errors import FedwiseError
from ..estimation.estimates import Estimates
from ..objective.pfl import Weights
from ..planning import Plan
from ..search.problem import PFL, Problem
from ..search.selection import Selection
from .terms import as_terms, client_terms, federation_terms, signs
from .values import Alternative, ClientValue, Group, Privacy, Search, Tile, Verdict

Floats = npt.NDArray[np.float64]

#: Random federations the chosen one is compared with, and the most exchanges looked at one by one.
RANDOM = 200
MOST_SWAPS = 300_000
_NAMES = {state.name.lower(): state for state in BY_USPS.values()}

RELATION = (
    "Two data sets are neighbours if one holds exactly one record more than the other: the promise covers the "
    "presence or absence of any single record. It holds whatever the reader already knows, and for everything "
    "computed from the releases afterwards, this page included."
)


def verdict(selection: Selection, candidates: int) -> Verdict:
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
    )


def search(selection: Selection) -> Search:
    """How the search went."""
    return Search(
        method=selection.method,
        status=selection.sentence,
        evaluations=selection.evaluations,
        seconds=selection.seconds,
        seed=selection.seed,
        chains=selection.chains or None,
        agreed=selection.agreed if selection.chains else None,
        trace=[(int(n), float(loss)) for n, loss in selection.trace if math.isfinite(loss)],
    )


def privacy(plan: Plan | None, *, simulated: bool, training: Sequence[str] = ()) -> Privacy:
    """The promise of a plan in words and numbers."""
    if plan is None:
        return Privacy(
            label="private", promise="The releases are not part of this report; their plan states the promise.",
            relation=RELATION, epsilon="inf", delta=0.0, tables=0, cells=0, noise_least=0.0, noise_most=0.0,
            calibration="", allocation="", left=[], stayed=[], training=list(training),
        )  # fmt: skip
    noise = "with noise in every cell" if plan.private else "as exact counts, without any noise"
    return Privacy(
        label="not private" if not plan.private else "simulated" if simulated else "private",
        promise=plan.promise,
        relation=RELATION if plan.private else "There is no promise about any record.",
        epsilon=plan.promise_epsilon,
        delta=plan.delta,
        tables=len(plan.tables),
        cells=plan.layout.cells,
        noise_least=float(plan.sigmas.min()),
        noise_most=float(plan.sigmas.max()),
        calibration=plan.calibration,
        allocation=plan.allocation,
        left=[
            f"Counts for {len(plan.tables)} pairs of {len(plan.schema.columns)} public columns, {noise}.",
            "The client's name, and the plan it answered.",
        ],
        stayed=[
            "Every record.",
            "Every exact count, the number of records included."
            if plan.private
            else "Columns outside the plan.",
            "Which categories occur: all tables have the public shape of the schema.",
        ],
        training=list(training),
    )


def clients(estimates: Estimates, selection: Selection) -> list[ClientValue]:
    """Every client: its own terms, its part in the federation or the price of bringing it in."""
    alone = client_terms(estimates)
    losses = alone @ signs(selection.weights)
    parts = {part.client: part for part in selection.contributions}
    chosen = set(selection.clients)
    swaps = joins(estimates, selection)
    rows = []
    for i, name in enumerate(estimates.clients):
        part = parts.get(name)
        price, partner = swaps.get(name, (None, None))
        rows.append(
            ClientValue(
                client=name,
                chosen=name in chosen,
                records=float(estimates.totals[i]),
                terms=as_terms(alone[i]),
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


def joins(estimates: Estimates, selection: Selection) -> dict[str, tuple[float, str]]:
    """For each outsider the best exchange with a member: change of the loss, and who would leave."""
    members = _positions(estimates, selection.clients)
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


def groups(estimates: Estimates, selection: Selection, *, seed: int = 0) -> list[Group]:
    """The chosen federation, random ones of its size (mean, and the middle 90% of losses), and everyone."""
    weights, k, n = selection.weights, selection.k, len(estimates.clients)
    found = [Group(name="Chosen federation", terms=selection.terms, loss=selection.terms.loss(weights))]
    if k < n:
        rng = np.random.default_rng([seed, 17])
        drawn = np.stack([rng.choice(n, size=k, replace=False) for _ in range(RANDOM)])
        found.append(_mean(f"{RANDOM} random federations", federation_terms(estimates, drawn), weights))
        everyone = federation_terms(estimates, np.arange(n)[None, :])[0]
        found.append(
            Group(name="All clients", terms=as_terms(everyone), loss=float(everyone @ signs(weights)))
        )
    return found


def _mean(name: str, table: Floats, weights: Weights) -> Group:
    losses = table @ signs(weights)
    low, high = np.quantile(losses, [0.05, 0.95])
    return Group(
        name=name,
        terms=as_terms(table.mean(axis=0)),
        loss=float(losses.mean()),
        low=float(low),
        high=float(high),
    )


def alternatives(selection: Selection) -> list[Alternative]:
    """Good federations that were not chosen."""
    chosen = set(selection.clients)
    return [
        Alternative(
            clients=list(other.clients),
            joins=sorted(set(other.clients) - chosen),
            leaves=sorted(chosen - set(other.clients)),
            loss=other.loss,
            gap=other.gap,
        )
        for other in selection.alternatives
    ]


def place(client: str) -> State | None:
    """The state a client is named after (``CA``, ``California``), if any."""
    return BY_USPS.get(client.upper()) or _NAMES.get(client.lower())


def tiles(candidates: Sequence[str], chosen: Sequence[str]) -> list[Tile]:
    """A tile for each state where the clients are states, else nothing."""
    places = {name: place(name) for name in candidates}
    if len(candidates) < 3 or any(found is None for found in places.values()):
        return []
    by_code = {found.usps: name for name, found in places.items() if found is not None}
    shown = [BY_USPS[code] for code in sorted({*FIFTY, *by_code})]
    members = set(chosen)
    return [
        Tile(
            client=by_code.get(state.usps, ""),
            code=state.usps,
            name=state.name,
            row=state.row,
            column=state.column,
            status="absent"
            if state.usps not in by_code
            else "chosen"
            if by_code[state.usps] in members
            else "rest",
        )
        for state in shown
    ]


def _positions(estimates: Estimates, names: Sequence[str]) -> npt.NDArray[np.int64]:
    at = {name: i for i, name in enumerate(estimates.clients)}
    return np.array(sorted(at[name] for name in names), dtype=np.int64)
