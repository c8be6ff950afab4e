"""Suspects: clients whose quality card accuses them, turned into exclusions before a search."""

from __future__ import annotations

from dataclasses import replace

from ..errors import FedwiseError, Infeasible
from ..estimation.estimates import Estimates
from ..pool.card import quality
from ..pool.pool import Pool
from .constraints import Constraints


def without_suspects(constraints: Constraints, pool: Pool | Estimates) -> Constraints:
    """The constraints with every suspect of the pool among the excluded; unchanged unless they ask for it.

    Raises
    ------
    FedwiseError
        Estimates were given: cards are made from releases.
    Infeasible
        A suspect must be included.
    """
    if not constraints.exclude_suspect:
        return constraints
    if not isinstance(pool, Pool):
        raise FedwiseError("exclude_suspect needs the pool of releases; pass the Pool instead of estimates")
    suspects = {name: card.verdict for name, card in quality(pool).items() if card.suspect}
    for name in constraints.include:
        if name in suspects:
            raise Infeasible(
                f"client '{name}' must be included but is a suspect ({suspects[name]}); drop one of the two"
            )
    return replace(constraints, exclude=(*constraints.exclude, *suspects), exclude_suspect=False)
