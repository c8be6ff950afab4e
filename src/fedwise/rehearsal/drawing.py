"""Drawing: random federations that a search may take."""

from __future__ import annotations

from collections.abc import Mapping

from ..search.constraints import Limits
from ..search.feasible import start

#: A federation: sorted positions of its clients.
Members = tuple[int, ...]


def random_federations(feasible: Mapping[int, Limits], count: int, *, seed: int, salt: int) -> list[Members]:
    """Distinct random federations of the sizes allowed; fewer where there are not so many.

    Equal seeds and salts give equal federations.
    """
    sizes = list(feasible)
    found: dict[Members, None] = {}
    for chain in range(8 * count):
        size = sizes[chain % len(sizes)]
        drawn = start(feasible[size], size, seed, chain + 100_000 * (salt + 1))
        found[tuple(int(i) for i in drawn)] = None
        if len(found) == count:
            break
    return list(found)
