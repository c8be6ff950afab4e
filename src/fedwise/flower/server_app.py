"""Server side: ask every node, pool what comes back, choose, and hand on a Grid of the chosen."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from flwr.serverapp import Grid

from ..coordinator.answers import Absence
from ..coordinator.choice import Choice
from ..coordinator.federation import Federation as _Federation
from ..coordinator.gathering import Gathered, gather
from ..coordinator.inquiry import Waiting
from ..planning import Plan
from ..search.selection import Selection
from .channel import FlowerChannel
from .grid import FederationGrid

__all__ = ["Absence", "Federation", "select_federation"]

_LOG = logging.getLogger("flwr")


class Federation(_Federation):
    """The chosen federation on Flower. Unpacks as ``selection, grid = select_federation(…)``.

    Attributes
    ----------
    grid
        Flower's Grid, limited to the chosen nodes.
    """

    def __init__(self, grid: Grid, gathered: Gathered, choice: Choice, waiting: Waiting) -> None:
        super().__init__(FlowerChannel(grid), gathered, choice, waiting)
        chosen = {name: int(node) for name, node in self.members.items()}
        self.grid = FederationGrid(grid, chosen, grace=waiting.grace)

    def __iter__(self) -> Iterator[Any]:
        yield self.selection
        yield self.grid


def select_federation(
    grid: Grid,
    plan: Plan,
    *,
    k: Any = None,
    timeout: float = 600.0,
    grace: float | None = None,
    min_releases: int | None = None,
    expected: int | None = None,
    save: str | Path | None = None,
    accept_flagged: bool = False,
    seed: int = 0,
    select: Callable[..., Selection] | None = None,
    poll: float = 1.0,
    **options: Any,
) -> Federation:
    """Ask every node for its release and choose the best federation among those that answer.

    Parameters
    ----------
    grid
        Flower's Grid, as ``@app.main()`` receives it.
    plan
        The public request.
    k
        Size of the federation, as for `fedwise.select`.
    timeout
        Seconds for the whole release phase. An answer that comes later is not used now; the node keeps
        it and sends the same one next time.
    grace
        Seconds to wait for stragglers after the last answer, in both phases, once enough have answered
        (`min_releases` here, half of the participants in a round). Default: the whole `timeout`.
    min_releases
        Fewest trusted releases to go on with. Default: `k`.
    expected
        Wait for this many nodes to connect (within `timeout`). Default: `min_releases`.
    save
        Directory to keep the releases in; `fedwise select DIRECTORY` repeats the choice from there.
    accept_flagged
        Use releases that fail the consistency screen.
    seed, options
        For `fedwise.select`: weights, constraints, estimator, method and the like.
    select
        Another function of (pool, k, seed=…, **options) that returns a `Selection`.
    poll
        Seconds between looks at the Grid.

    Raises
    ------
    PoolError
        Too few releases. The text lists every node that is missing, and why.
    """
    choice = Choice(k, seed, select, options)
    least = choice.least(min_releases)
    waiting = Waiting(timeout, grace, least, max(expected or 0, least), poll, _LOG)
    gathered = gather(
        FlowerChannel(grid), plan, waiting, least=least, accept_flagged=accept_flagged, save=save
    )
    return Federation(grid, gathered, choice, waiting)
