"""Choice: how a federation is chosen from a pool, so that it can be chosen again when clients leave or come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import FedwiseError
from ..owner.shortlisted import Shortlist
from ..pool.pool import Pool
from ..search import select
from ..search.constraints import Constraints, Rules
from ..search.elimination import shortlist
from ..search.selection import Selection


@dataclass(frozen=True)
class Choice:
    """The question a coordinator asks of a pool.

    Parameters
    ----------
    k
        Size of the federation, as for `fedwise.select`.
    seed
        Seed of the search.
    select
        Another function of (pool, k, seed=…, **options) that returns a `Selection`.
    options
        For `fedwise.select`: weights, constraints, estimator, method and the like.
    """

    k: Any = None
    seed: int = 0
    select: Callable[..., Selection] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def least(self, min_releases: int | None) -> int:
        """Fewest releases to choose from."""
        least = min_releases if min_releases is not None else (self.k if isinstance(self.k, int) else 1)
        if isinstance(self.k, int) and least < self.k:
            raise FedwiseError(f"min_releases must be at least k, got {least} for k = {self.k}")
        return least

    def shortlist(self, pool: Pool, settings: Mapping[str, Any]) -> Shortlist:
        """Who is asked again before this choice is made; `settings` are keywords of `fedwise.shortlist`."""
        rules = {name: value for name, value in self.options.items() if name in Rules.__annotations__}
        given = {name: self.options[name] for name in ("objective", "weights") if name in self.options}
        asked = Constraints.of(self.options.get("constraints"), **rules)
        return shortlist(pool, self.k, constraints=asked, seed=self.seed, **given, **settings)

    def of(self, pool: Pool) -> Selection:
        """The best federation of a pool."""
        return (self.select or select)(pool, self.k, seed=self.seed, **self.options)

    def again(
        self, pool: Pool, *, size: int | None = None, stay: Iterable[str] = (), without: Iterable[str] = ()
    ) -> Selection:
        """The best federation without some clients, of which some `stay`; `size` replaces the size asked for."""
        rules = {name: value for name, value in self.options.items() if name in Rules.__annotations__}
        rest = {name: value for name, value in self.options.items() if name not in {*rules, "constraints"}}
        asked = Constraints.of(self.options.get("constraints"), **rules)
        gone = set(without)
        include = [name for name in dict.fromkeys((*asked.include, *stay)) if name not in gone]
        known = set(pool.clients)
        exclude = [name for name in dict.fromkeys((*asked.exclude, *sorted(gone))) if name in known]
        limits = replace(asked, include=tuple(include), exclude=tuple(exclude))
        k = self.k if size is None else size
        return (self.select or select)(pool, k, seed=self.seed, constraints=limits, **rest)
