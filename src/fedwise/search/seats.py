"""Seats: who takes no seat before a search begins: spoilt records, tables that hold only noise, stages not answered."""

from __future__ import annotations

from dataclasses import replace

from ..errors import FedwiseError, Infeasible
from ..estimation.consistency import combine
from ..estimation.estimates import Estimates
from ..pool.attenuation import least_records
from ..pool.card import Card, quality
from ..pool.pool import Pool
from .constraints import Constraints


def seat(
    constraints: Constraints, pool: Pool | Estimates, most: int, *, asking: bool = False
) -> tuple[Constraints, tuple[str, ...]]:
    """The constraints with everybody excluded who takes no seat, and a sentence about each reason.

    A client whose number of records cannot be told from 0 changes no sum, so the loss would give it a seat for free;
    it takes none unless it is included by name. With `exclude_suspect`, neither does a suspect of
    `fedwise.quality`, nor, the most doubtful first, a doubtful client, nor then one that lacks a class of the target,
    as long as `most` others are left. With `answered`, neither does a client that has not answered the last stage; the
    same where the plan asks for a score, as the first tables are mostly noise there, as long as `most` others are left.

    Parameters
    ----------
    most
        Largest size that is searched.
    asking
        Whether seats are for a shortlist: whose tables are few or mostly noise may still be asked for better ones.

    Raises
    ------
    FedwiseError
        Estimates were given where releases are needed: for cards of suspects, and for stages.
    Infeasible
        A suspect, or a client that has not answered, must be included, or too few have answered.
    """
    if not isinstance(pool, Pool):
        for name in ("exclude_suspect", "answered"):
            if getattr(constraints, name):
                raise FedwiseError(f"{name} needs the pool of releases; pass the Pool instead of estimates")
        return constraints, ()
    out = list(constraints.exclude)
    notes: list[str] = []
    if constraints.answered:
        silent = _silent(constraints, pool, most)
        out = list(dict.fromkeys([*out, *silent]))
        notes.append(
            f"{len(silent)} of {len(pool)} clients have not answered the last stage and take no seat"
        )
    elif not asking and (unknown := _unknown(constraints, pool, most)):
        out = list(dict.fromkeys([*out, *unknown]))
        notes.append(
            f"{len(unknown)} of {len(pool)} clients have answered no more than the first tables and a score, and take "
            "no seat; include a client by name to seat it"
        )
    # After a first stage that leaves nearly everything to a score, hardly anybody's number of records is known.
    empty = [] if asking and pool.plan.scored is not None else empty_clients(pool)
    empty = [name for name in empty if name not in {*constraints.include, *out}]
    if len(pool) - len(out) - len(empty) >= most:
        out += empty
        if empty:
            notes.append(
                f"no seat for {_list(empty)}: the tables hold no more than noise; include a client by name to seat it"
            )
    elif empty:
        notes.append(f"the tables of {_list(empty)} hold no more than noise, but the size leaves no others")
    if constraints.exclude_suspect:
        cards = quality(pool)
        _refuse_included(constraints, cards)
        suspects = [name for name, card in cards.items() if card.suspect]
        out = list(dict.fromkeys([*out, *suspects]))
        doubtful = [
            name
            for name, card in sorted(cards.items(), key=lambda pair: pair[1].doubt)
            if card.doubtful and name not in {*out, *constraints.include}
        ][: max(len(pool) - len(out) - most, 0)]
        out += doubtful
        lacking = [
            name
            for name, card in sorted(cards.items(), key=lambda pair: -_lacked(pair[1]))
            if card.lacks and name not in {*out, *constraints.include}
        ][: max(len(pool) - len(out) - most, 0)]
        out += lacking
        notes.append(_said(suspects, doubtful, lacking, len(pool)))
    return replace(constraints, exclude=tuple(out), exclude_suspect=False, answered=False), tuple(notes)


def _silent(constraints: Constraints, pool: Pool, most: int) -> list[str]:
    """Clients that have not answered the last stage that anybody has answered."""
    last = max((spending.stage for spending in pool.spendings), default=1)
    if last < 2:
        raise FedwiseError(
            "answered needs releases of a second stage, got none; leave it out, or ask for the next stage first"
        )
    silent = [spending.client for spending in pool.spendings if spending.stage < last]
    for name in constraints.include:
        if name in silent:
            raise Infeasible(
                f"client '{name}' must be included but has not answered stage {last}; drop one of the two"
            )
    left = len(set(pool.clients) - {*silent, *constraints.exclude})
    if left < most:
        raise Infeasible(
            f"size must be at most {left}, as many clients as have answered stage {last} and are not excluded, got "
            f"{most}; give a smaller size or drop answered"
        )
    return silent


def _unknown(constraints: Constraints, pool: Pool, most: int) -> list[str]:
    """Clients of a plan with a score that have not answered the tables again, where enough others have."""
    last = len(pool.plan.staged)
    if pool.plan.scored is None or not any(spending.stage == last for spending in pool.spendings):
        return []
    found = [
        spending.client
        for spending in pool.spendings
        if spending.stage < last and spending.client not in constraints.include
    ]
    return found if len(set(pool.clients) - {*found, *constraints.exclude}) >= most else []


def empty_clients(pool: Pool) -> list[str]:
    """Clients whose number of records is within three standard errors of 0; nobody where there is no noise."""
    if not pool.plan.private:
        return []
    totals = combine(pool.matrix, pool.plan.layout, pool.sigmas)[0]
    least = least_records(pool.plan.layout, pool.sigmas)
    return [name for name, few in zip(pool.clients, totals <= least, strict=True) if few]


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
