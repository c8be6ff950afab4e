"""Seats: who takes no seat before a search begins: spoilt records, tables of noise, or too little after the last stage."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..errors import FedwiseError, Infeasible
from ..estimation.consistency import combine
from ..estimation.estimates import Estimates
from ..objective.weights import Weights
from ..pool.attenuation import least_records
from ..pool.card import Card, quality
from ..pool.pool import Pool
from .client_errors import SHOWN, known_share
from .constraints import Constraints

#: What is said of clients that have not answered the last stage.
_UNHEARD = (
    "no seat for {}: they have not answered the last stage, and earlier releases tell too little of them; include a "
    "client by name to seat it"
)


def seat(
    constraints: Constraints,
    pool: Pool | Estimates,
    most: int,
    *,
    estimates: Estimates | None = None,
    weights: Weights | None = None,
) -> tuple[Constraints, tuple[str, ...]]:
    """The constraints with everybody excluded who takes no seat, and a sentence about each reason.

    A client whose number of records cannot be told from 0 changes no sum, so the loss would give it a seat for free;
    it takes none unless it is included by name. With `exclude_suspect`, neither does a suspect of
    `fedwise.quality`, nor, the most doubtful first, a doubtful client, nor then one that lacks a class of the target,
    as long as `most` others are left.

    Where the last stage of a plan was answered by `most` clients at least, those who have not answered it take no seat
    if their earlier releases show little of what tells them apart: the best of many noisy ones would be chosen for its
    noise. That needs `estimates` and `weights`.

    Parameters
    ----------
    most
        Largest size that is searched.
    estimates, weights
        Estimates of the pool, and the weights of the loss.

    Raises
    ------
    FedwiseError
        Suspects are to be excluded and estimates were given: cards are made from releases.
    Infeasible
        A suspect must be included.
    """
    if not isinstance(pool, Pool):
        if constraints.exclude_suspect:
            raise FedwiseError(
                "exclude_suspect needs the pool of releases; pass the Pool instead of estimates"
            )
        return constraints, ()
    out = list(constraints.exclude)
    notes: list[str] = []
    empty = [name for name in empty_clients(pool) if name not in {*constraints.include, *out}]
    if len(pool) - len(out) - len(empty) >= most:
        out += empty
        if empty:
            notes.append(
                f"no seat for {_list(empty)}: the tables hold no more than noise; include a client by name to seat it"
            )
    elif empty:
        notes.append(f"the tables of {_list(empty)} hold no more than noise, but the size leaves no others")
    if estimates is not None and weights is not None:
        unheard = unheard_clients(pool, estimates, weights)
        unheard = [name for name in unheard if name not in {*constraints.include, *out}]
        if unheard and len(pool) - len(out) - len(unheard) >= most:
            out += unheard
            notes.append(_UNHEARD.format(_list(unheard)))
    if constraints.exclude_suspect:
        spoilt, note = _spoilt(constraints, pool, out, most)
        out += spoilt
        notes.append(note)
    return replace(constraints, exclude=tuple(out), exclude_suspect=False), tuple(notes)


def _spoilt(constraints: Constraints, pool: Pool, out: list[str], most: int) -> tuple[list[str], str]:
    """Suspects; doubtful clients and those that lack a class as long as `most` are left; and what is said of them."""
    cards = quality(pool)
    _refuse_included(constraints, cards)
    suspects = [name for name, card in cards.items() if card.suspect]
    gone = {*out, *suspects}
    doubtful = [
        name
        for name, card in sorted(cards.items(), key=lambda pair: pair[1].doubt)
        if card.doubtful and name not in {*gone, *constraints.include}
    ][: max(len(pool) - len(gone) - most, 0)]
    gone |= {*doubtful}
    lacking = [
        name
        for name, card in sorted(cards.items(), key=lambda pair: -_lacked(pair[1]))
        if card.lacks and name not in {*gone, *constraints.include}
    ][: max(len(pool) - len(gone) - most, 0)]
    found = [name for name in (*suspects, *doubtful, *lacking) if name not in out]
    return found, _said(suspects, doubtful, lacking, len(pool))


def empty_clients(pool: Pool) -> list[str]:
    """Clients whose number of records is within three standard errors of 0; nobody where there is no noise."""
    if not pool.plan.private:
        return []
    totals = combine(pool.matrix, pool.plan.layout, pool.sigmas)[0]
    least = least_records(pool.plan.layout, pool.sigmas)
    return [name for name, few in zip(pool.clients, totals <= least, strict=True) if few]


def unheard_clients(pool: Pool, estimates: Estimates, weights: Weights) -> list[str]:
    """Clients behind the last stage answered, where their releases hide what tells them apart.

    Nobody before the last wave of a stage: anybody may still be asked.
    """
    reached = np.array([spending.stage for spending in pool.spendings])
    if not reached.size or (pool.shortlist is not None and not pool.shortlist.complete):
        return []
    behind = reached < reached.max()
    if not behind.any() or known_share(estimates, weights, behind, alone=True) >= SHOWN:
        return []
    return [name for name, is_behind in zip(pool.clients, behind, strict=True) if is_behind]


def _refuse_included(constraints: Constraints, cards: dict[str, Card]) -> None:
    for name in constraints.include:
        if name in cards and cards[name].suspect:
            raise Infeasible(
                f"client '{name}' must be included but is a suspect ({cards[name].verdict}); drop one of the two"
            )


def _lacked(card: Card) -> float:
    """How far the classes that a client lacks are short of the pool's share, in standard errors."""
    return sum(entry.z for entry in card.lacks)


def _said(suspects: list[str], doubtful: list[str], lacking: list[str], clients: int) -> str:
    if not suspects and not doubtful and not lacking:
        return f"quality: none of {clients} clients is suspect or doubtful"
    parts = [
        f"{len(names)} {word} ({_list(names)})"
        for names, word in ((suspects, "suspect"), (doubtful, "doubtful"), (lacking, "lacking a class"))
        if names
    ]
    return f"quality: left out {' and '.join(parts)} of {clients} clients; honest ones can be among them"


def _list(names: list[str]) -> str:
    shown = ", ".join(names[:10])
    return shown if len(names) <= 10 else f"{shown} and {len(names) - 10} more"
