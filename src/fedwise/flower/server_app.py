"""Server side: ask every node, pool what comes back, choose, and hand on a Grid of the chosen."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

from ..errors import FedwiseError, PoolError
from ..owner.release import SUFFIX, Release
from ..planning import Plan
from ..pool.pool import Pool
from ..search import select as search
from ..search.selection import Selection
from . import wire
from .answers import Absence, sort_answers
from .client_app import records
from .exchange import Exchange
from .grid import FederationGrid

__all__ = ["Absence", "Federation", "select_federation"]

_LOG = logging.getLogger("flwr")
#: Seconds a node whose request was lost has to come back.
_RETURN = 20.0


@dataclass(frozen=True, eq=False)
class Federation:
    """The chosen federation. Unpacks as ``selection, grid = select_federation(…)``.

    Attributes
    ----------
    selection
        What `fedwise.select` returned for the pool.
    grid
        Flower's Grid, limited to the chosen nodes.
    pool
        All releases that were trusted.
    nodes
        Node id of every client in the pool.
    absent
        Every other node that was asked, with the reason.
    """

    selection: Selection
    grid: FederationGrid
    pool: Pool
    nodes: dict[str, int]
    absent: tuple[Absence, ...]
    releases: tuple[Release, ...]

    def __iter__(self) -> Iterator[Any]:
        yield self.selection
        yield self.grid

    @property
    def clients(self) -> tuple[str, ...]:
        """Names of the chosen clients."""
        return tuple(self.grid.nodes)

    @property
    def missing(self) -> tuple[Absence, ...]:
        """Nodes that gave no usable answer: silent, failed, or of another version."""
        return tuple(a for a in self.absent if a.kind in ("silent", "failed", "version", "invalid"))

    @property
    def declined(self) -> tuple[Absence, ...]:
        """Nodes whose owner said no."""
        return tuple(a for a in self.absent if a.kind == "declined")

    @property
    def flagged(self) -> tuple[Absence, ...]:
        """Nodes whose release is not trusted."""
        return tuple(a for a in self.absent if a.kind in ("flagged", "duplicate"))

    @cached_property
    def sizes(self) -> dict[str, float]:
        """Number of records of each chosen client, as its noisy tables tell it."""
        return {made.client: records(made) for made in self.releases if made.client in self.grid.nodes}


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
    if not timeout > 0:
        raise FedwiseError(f"timeout must be above 0 seconds, got {timeout}")
    least = min_releases if min_releases is not None else (k if isinstance(k, int) else 1)
    if isinstance(k, int) and least < k:
        raise FedwiseError(f"min_releases must be at least k, got {least} for k = {k}")
    wanted = max(expected or 0, least)
    replies, asked = _ask(grid, plan, timeout=timeout, grace=grace, expected=wanted, enough=least, poll=poll)
    releases, absent = sort_answers(asked, replies, plan, accept_flagged=accept_flagged)
    if save is not None:
        for found in releases.values():
            found.save(Path(save) / f"{found.client}{SUFFIX}", force=True)
    ordered, pool = _pool(
        releases, absent, asked=len(asked), least=max(least, 1), accept_flagged=accept_flagged
    )
    selection = (select or search)(pool, k, seed=seed, **options)
    nodes = {found.client: node for node, found in ordered}
    chosen = {client: nodes[client] for client in selection.clients}
    _LOG.info("fedwise: the federation is %s", ", ".join(sorted(chosen)))
    return Federation(
        selection=selection,
        grid=FederationGrid(grid, chosen, grace=grace),
        pool=pool,
        nodes=nodes,
        absent=tuple(absent),
        releases=tuple(found for _, found in ordered),
    )


def _pool(
    releases: dict[int, Release], absent: list[Absence], *, asked: int, least: int, accept_flagged: bool
) -> tuple[list[tuple[int, Release]], Pool]:
    """The releases in the order of their clients, and their pool; who is missing is logged, or the reason to stop."""
    for absence in absent:
        _LOG.warning("fedwise: not in the pool: %s", absence)
    if len(releases) < least:
        lines = "".join(f"\n  {absence}" for absence in absent) or "\n  no other node was connected"
        raise PoolError(
            f"federation needs at least {least} releases, got {len(releases)} from {asked} nodes; "
            f"not in the pool:{lines}"
        )
    _LOG.info("fedwise: %d releases from %d nodes", len(releases), asked)
    ordered = sorted(releases.items(), key=lambda item: item[1].client)
    pool = Pool.of([found for _, found in ordered], accept_flagged=accept_flagged)
    if pool.label != "private":
        _LOG.warning("fedwise: the releases are %s", pool.label)
    return ordered, pool


def _ask(
    grid: Grid, plan: Plan, *, timeout: float, grace: float | None, expected: int, enough: int, poll: float
) -> tuple[dict[int, Message], set[int]]:
    """Send the plan to every node, also to those that connect or come back while we wait; collect the replies.

    The request lives no longer than `timeout`, so no node answers it much later. A node that was restarted
    may have been listed before it was back: its request is lost, and sent again. Asking twice is safe, as
    a node keeps its answer and never draws a second one for a plan.
    """
    content = wire.request(plan.encode())
    exchange = Exchange(grid, timeout=timeout, grace=grace)
    patience = _RETURN if grace is None else min(grace, _RETURN)
    while True:
        online = set(grid.get_node_ids())
        exchange.forget(exchange.lost & online)
        fresh = sorted(online - exchange.asked)
        if fresh and exchange.left > 0:
            ttl = max(exchange.left, 1.0)
            exchange.send([Message(content, node, wire.MESSAGE_TYPE, ttl=ttl) for node in fresh])
        exchange.pull()
        over = exchange.over(enough=enough) and not (exchange.lost and exchange.quiet < patience)
        if exchange.left <= 0 or (over and len(exchange.asked) >= expected):
            return exchange.answers, exchange.asked
        exchange.sleep(poll)
