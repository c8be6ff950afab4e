"""Gathering: the release phase as a whole, from a plan to a pool of trusted releases with the node of each client."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import PoolError
from ..owner.release import SUFFIX, Release
from ..owner.shortlisted import Shortlist
from ..planning import Plan
from ..pool.pool import Pool
from .answers import Absence, Sorted
from .channel import Channel, Node
from .inquiry import Waiting, inquire

#: Releases written at the same time.
_WRITERS = 8


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
    again: Callable[[Pool], Shortlist] | None = None,
) -> Gathered:
    """Ask every node and pool what can be trusted; of a plan with stages, ask those on each shortlist again.

    Parameters
    ----------
    least
        Fewest trusted releases to go on with.
    save
        Directory to keep the releases in.
    again
        Who is asked for the next stage of a plan with stages, or its next wave, from the pool so far. Nobody else
        gets a message.

    Raises
    ------
    PoolError
        Too few releases. The text lists every node that is missing, and why.
    """
    found = inquire(channel, plan, waiting, accept_flagged=accept_flagged)
    if save is not None:
        keep_releases(list(found.releases.values()), save)
    made = pooled(found, least=max(least, 1), accept_flagged=accept_flagged, log=waiting.log)
    over = again is None or not plan.staged
    while again is not None and not over:  # a stage, or one wave of it
        kept, listed = len(made.releases), again(made.pool)
        made = _ask_again(channel, plan, waiting, made, listed, accept_flagged=accept_flagged)
        over = listed.complete and listed.stage == len(plan.staged)
        if save is not None:
            keep_releases(made.releases[kept:], save)
            listed.save(Path(save) / "shortlist.json", force=True)
    return made


def _ask_again(
    channel: Channel[Any],
    plan: Plan,
    waiting: Waiting,
    made: Gathered,
    listed: Shortlist,
    *,
    accept_flagged: bool,
) -> Gathered:
    """The pool with a further release of those the shortlist adds, if they answer; the others keep what they gave."""
    stage, nodes = listed.stage, {made.nodes[name]: name for name in listed.added if name in made.nodes}
    waiting.log.info("fedwise: stage %d asks %d of %d clients again", stage, len(nodes), len(made.pool))
    if not nodes:
        made.pool.shortlist = listed
        return made
    found = inquire(
        channel, plan, replace(waiting, enough=len(nodes)), only=set(nodes), stage=stage, score=listed.scored,
        accept_flagged=True,
    )  # fmt: skip
    for absence in found.absent:
        waiting.log.warning("fedwise: no release of stage %d: %s; the first one stays", stage, absence)
    # A release under the name of another client is no answer of this one.
    own = [release for node, release in found.releases.items() if release.client == nodes.get(node)]
    releases = (*made.releases, *own)
    pool = Pool.of(releases, accept_flagged=accept_flagged)
    pool.shortlist = listed
    return made._replace(pool=pool, releases=releases)


def keep_releases(releases: Sequence[Release], folder: str | Path) -> list[Path]:
    """Write the releases a coordinator holds to a folder that `fedwise select` reads; the files written."""

    def keep(found: Release) -> Path:
        edition = "" if found.plan.number == 1 else f".edition-{found.plan.number}"
        stage = "" if found.number == 1 else f".stage{found.number}"
        path = Path(folder) / f"{found.client}{edition}{stage}{SUFFIX}"
        found.save(path, force=True)
        return path

    # Each file waits until it is on the disk, and the disk takes several at a time as fast as one.
    with ThreadPoolExecutor(_WRITERS) as writers:
        return list(writers.map(keep, releases))


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
