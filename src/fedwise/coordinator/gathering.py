"""Gathering: the release phase as a whole, from a plan to a pool of trusted releases with the node of each client."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import PoolError
from ..owner.release import SUFFIX, Release
from ..planning import Plan
from ..pool.pool import Pool
from .answers import Absence, Sorted
from .channel import Channel, Node
from .inquiry import Waiting, inquire


class Gathered(NamedTuple):
    """All trusted releases as a pool, the node of each client, and every other node with the reason."""

    pool: Pool
    nodes: dict[str, Node]
    absent: tuple[Absence, ...]
    releases: tuple[Release, ...]
    #: Clients whose release is of older data than their owner has now: version of the release, version now.
    stale: dict[str, tuple[int | None, int]]


def gather(
    channel: Channel[Any],
    plan: Plan,
    waiting: Waiting,
    *,
    least: int = 1,
    accept_flagged: bool = False,
    save: str | Path | None = None,
) -> Gathered:
    """Ask every node and pool what can be trusted.

    A plan in several stages would ask again here: `inquire` with ``only`` asks a shortlist and nobody else.

    Parameters
    ----------
    least
        Fewest trusted releases to go on with.
    save
        Directory to keep the releases in.

    Raises
    ------
    PoolError
        Too few releases. The text lists every node that is missing, and why.
    """
    found = inquire(channel, plan, waiting, accept_flagged=accept_flagged)
    if save is not None:
        keep_releases(list(found.releases.values()), save)
    return pooled(found, least=max(least, 1), accept_flagged=accept_flagged, log=waiting.log)


def keep_releases(releases: Sequence[Release], folder: str | Path) -> None:
    """Write the releases a coordinator holds to a folder that `fedwise select` reads."""
    for found in releases:
        edition = "" if found.plan.number == 1 else f".edition-{found.plan.number}"
        found.save(Path(folder) / f"{found.client}{edition}{SUFFIX}", force=True)


def pooled(found: Sorted, *, least: int, accept_flagged: bool, log: logging.Logger) -> Gathered:
    """The pool of sorted answers; who is missing is logged, or the reason to stop."""
    releases, absent, stale = found
    for absence in absent:
        log.warning("fedwise: not in the pool: %s", absence)
    asked = len(releases) + len(absent)
    if len(releases) < least:
        lines = "".join(f"\n  {absence}" for absence in absent) or "\n  no other node was connected"
        raise PoolError(
            f"federation needs at least {least} releases, got {len(releases)} from {asked} nodes; "
            f"not in the pool:{lines}"
        )
    log.info("fedwise: %d releases from %d nodes", len(releases), asked)
    ordered = sorted(releases.items(), key=lambda item: item[1].client)
    pool = Pool.of([release for _, release in ordered], accept_flagged=accept_flagged)
    if pool.label != "private":
        log.warning("fedwise: the releases are %s", pool.label)
    warn_stale(stale, log)
    nodes = {release.client: node for node, release in ordered}
    return Gathered(pool, nodes, tuple(absent), tuple(release for _, release in ordered), stale)


def warn_stale(stale: Mapping[str, tuple[int | None, int]], log: logging.Logger) -> None:
    """A line of the log for each client whose data changed since its release."""
    for client, (then, now) in sorted(stale.items()):
        made = "data without a version" if then is None else f"version {then} of its data"
        log.warning(
            "fedwise: the release of %s is of %s, its owner has version %d now; ask the next edition of the plan "
            "to refresh it (federation.refresh())",
            client, made, now,
        )  # fmt: skip
