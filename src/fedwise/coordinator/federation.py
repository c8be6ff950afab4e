"""Federation: the clients chosen to train, as a coordinator holds them while clients come and go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ..errors import FedwiseError, Infeasible, PoolError, nearest
from ..owner.release import Release
from ..owner.replies import records
from ..pool.drift import Drift, drift
from ..pool.pool import Pool
from ..search.selection import Selection
from .answers import Absence
from .channel import Channel, Node
from .choice import Choice
from .gathering import Gathered, warn_stale
from .inquiry import Waiting, inquire
from .summary import summarise


class Change(NamedTuple):
    """Somebody who left the federation, came to it, joined the pool or renewed a release, after which round and why."""

    round: int
    kind: Literal["left", "came", "joined", "renewed"]
    client: str
    reason: str

    def __str__(self) -> str:
        words = {
            "left": "left",
            "came": "came",
            "joined": "joined the pool",
            "renewed": "renewed its release",
        }
        return f"after round {self.round}: {self.client} {words[self.kind]} ({self.reason})"


@dataclass(frozen=True)
class Turnover:
    """What happens to a federation while it trains.

    Parameters
    ----------
    substitutes
        Replace a member that did not deliver in this many rounds in a row; 0 never.
    reselect
        Choose again after every so many rounds, from who is online and known; newcomers are asked first. 0 never.
    wait
        Seconds a newcomer has to answer.
    """

    substitutes: int = 0
    reselect: int = 0
    wait: float = 60.0

    def __post_init__(self) -> None:
        for name in ("substitutes", "reselect"):
            if int(getattr(self, name)) < 0:
                raise FedwiseError(f"{name} must be at least 0, got {getattr(self, name)}; 0 turns it off")


class Federation:
    """The chosen federation.

    Attributes
    ----------
    selection
        What `fedwise.select` returned for the pool, last time it was asked.
    members
        Node of every chosen client.
    pool, releases
        All releases that were trusted.
    nodes
        Node of every client in the pool.
    absent
        Every other node that was asked, with the reason.
    stale
        Clients whose release is of older data than their owner has now: version of the release, version now.
    changes
        Who left and who came, in order.
    rounds
        Rounds of training so far.
    """

    def __init__(
        self,
        channel: Channel[Any],
        gathered: Gathered,
        choice: Choice,
        waiting: Waiting,
        *,
        turnover: Turnover | None = None,
        accept_flagged: bool = False,
    ) -> None:
        self.channel, self.choice, self.waiting = channel, choice, waiting
        self.turnover = turnover or Turnover()
        self.accept_flagged = accept_flagged
        self.pool, self.nodes, self.absent, self.releases, self.stale = gathered
        self.rounds = 0
        self.changes: list[Change] = []
        self.drifts: list[Drift] = []
        self._strikes: dict[str, int] = {}
        self._gone: set[str] = set()
        self.selection: Selection = choice.of(self.pool)
        self.first = self.selection
        self.members = self._nodes_of(self.selection.clients)
        for level, line in summarise(self.selection, self.pool):
            waiting.log.log(level, "fedwise: %s", line)

    @property
    def clients(self) -> tuple[str, ...]:
        """Names of the chosen clients."""
        return tuple(self.members)

    @property
    def missing(self) -> tuple[Absence, ...]:
        """Nodes that gave no usable answer: silent, failed, or of another version."""
        return tuple(a for a in self.absent if a.kind in ("silent", "failed", "version", "invalid"))

    @property
    def declined(self) -> tuple[Absence, ...]:
        """Nodes whose owner said no; by name where the owner lets it be told."""
        return tuple(a for a in self.absent if a.kind == "declined")

    @property
    def flagged(self) -> tuple[Absence, ...]:
        """Nodes whose release is not trusted."""
        return tuple(a for a in self.absent if a.kind in ("flagged", "duplicate"))

    @property
    def sizes(self) -> dict[str, float]:
        """Records of each chosen client as its noisy tables tell; of the whole pool where members may change."""
        changing = self.turnover.substitutes or self.turnover.reselect
        return {
            made.client: records(made)
            for made in self.releases
            if not made.scored and (changing or made.client in self.members)
        }

    @property
    def missed(self) -> Sequence[tuple[str, str, str]]:
        """Who was asked in training and did not deliver: client, kind of the message, reason. An adapter knows."""
        return ()

    def substitute(self, left: str | Iterable[str], *, reason: str = "left") -> tuple[str, ...]:
        """Replace members that left by the best others of the pool. Nobody is asked anything for it.

        Parameters
        ----------
        left
            Members that train no longer.
        reason
            Why, for the record.

        Returns
        -------
        tuple of str
            Who came; fewer than left where nobody suitable is online.
        """
        names = [left] if isinstance(left, str) else list(left)
        for name in names:
            if name not in self.members:
                raise FedwiseError(f"client '{name}' is not in the federation{nearest(name, self.members)}")
        return self._replace(dict.fromkeys(names, reason))

    def reselect(self, *, reason: str = "chosen again") -> tuple[str, ...]:
        """Choose again from everyone known who is online. Returns who came."""
        self._gone.clear()
        away = self._away(self.pool.clients)
        left = {name: "offline" for name in self.members if name in away}
        try:
            found = self.choice.again(self.pool, without=away)
        except (Infeasible, PoolError, FedwiseError) as cause:
            self.waiting.log.warning("fedwise: nothing was chosen again: %s", cause)
            return self._replace(left) if left else ()
        for name in self.members:
            if name not in found.clients:
                left.setdefault(name, reason)
        return self._take(found, left, reason=reason)

    def admit(self, *, timeout: float | None = None) -> tuple[str, ...]:
        """Ask nodes that connected since, and nobody else; those that answer join the pool. Returns their names."""
        known = {*self.nodes.values(), *(absence.node for absence in self.absent)}
        fresh = [node for node in self.channel.online() if node not in known]
        if not fresh:
            return ()
        found = self._ask(self.pool.asked, fresh, self.turnover.wait if timeout is None else timeout)
        names = set(self.nodes)
        new = {node: made for node, made in found.releases.items() if made.client not in names}
        self.absent = (*self.absent, *found.absent)
        self._pool([*self.releases, *new.values()])
        self.nodes |= {made.client: node for node, made in new.items()}
        self.stale |= found.stale
        came = tuple(sorted(made.client for made in new.values()))
        self._note("joined", came, "connected later")
        return came

    def refresh(self, *, timeout: float | None = None, reason: str = "refresh") -> tuple[str, ...]:
        """Ask the next edition of the plan of clients whose data changed, and of nobody else; then choose again.

        An owner whose ledger has no room declines, and the release at hand stays. Returns who renewed.
        """
        asked = [self.nodes[name] for name in self.stale if name in self.nodes]
        if not asked:
            return ()
        before = {made.client: made for made in self.releases}
        plan = self.pool.asked.at_edition(max(made.plan.number for made in self.releases) + 1)
        found = self._ask(plan, asked, self.waiting.timeout if timeout is None else timeout)
        for absence in found.absent:
            self.waiting.log.warning("fedwise: not renewed: %s", absence)
        renewed = {
            made.client: made
            for made in found.releases.values()
            if made.client in before and made.plan_digest != before[made.client].plan_digest
        }
        for client, made in renewed.items():
            self.drifts.append(drift(before[client], made))
            self.waiting.log.info("fedwise: %s", self.drifts[-1])
            self.stale.pop(client, None)
        self.stale |= found.stale
        warn_stale(found.stale, self.waiting.log)
        if renewed:
            self._pool([*self.releases, *renewed.values()])
            self._note("renewed", tuple(sorted(renewed)), "its data changed")
            self.reselect(reason=reason)
        return tuple(sorted(renewed))

    def after_round(self, missing: Mapping[str, str]) -> None:
        """Count a round of training; who did not deliver in it may be replaced before the next.

        Parameters
        ----------
        missing
            Members that did not deliver, and why.
        """
        self.rounds += 1
        lost = {name: reason for name, reason in missing.items() if name in self.members}
        lost |= {name: "offline" for name in self._away(self.members) if name not in lost}
        self._strikes = {name: self._strikes.get(name, 0) + 1 for name in lost}
        every = self.turnover.reselect
        limit = int(self.turnover.substitutes)
        left = {name: reason for name, reason in lost.items() if limit and self._strikes[name] >= limit}
        if left:
            self._replace_if_possible(left)
        if every and self.rounds % every == 0:
            self.admit()
            self.reselect()

    def save(
        self, directory: str | Path, *, metrics: Sequence[Any] = (), engine: str = "", force: bool = False
    ) -> Path:
        """Write a run directory that `fedwise report` reads: releases, plan, selection, metrics, who left and who came.

        Parameters
        ----------
        directory
            Where to.
        metrics
            `fedwise.training.records.Record` of every round.
        engine
            Name and version of the engine, for the record.
        force
            Whether it may replace what an earlier run left there.
        """
        from .record import save_federation

        return save_federation(self, Path(directory), metrics=metrics, engine=engine, force=force)

    def changed_members(self) -> None:
        """Called after the members changed; an adapter tells its engine."""

    def _replace_if_possible(self, left: Mapping[str, str]) -> None:
        """Replace as many as there are others to choose from; the rest stay members, for they may come back."""
        away = self._away(self.pool.clients) | self._gone
        free = [name for name in self.pool.clients if name not in self.members and name not in away]
        able = dict(list(left.items())[: len(free)])
        if able:
            self._replace(able)
        for name in left.keys() - able.keys():
            self.waiting.log.warning(
                "fedwise: nobody can replace %s; it is asked again in the next round", name
            )

    def _replace(self, left: Mapping[str, str]) -> tuple[str, ...]:
        """Members that stay, and the best others of the pool in place of those that left."""
        self._gone |= set(left)
        size, stay = len(self.members), [name for name in self.members if name not in left]
        without = self._away(self.pool.clients) | self._gone
        stay = [name for name in stay if name not in without]
        while size > 0:
            try:
                found = self.choice.again(self.pool, size=size, stay=stay, without=without)
            except FedwiseError:
                size -= 1  # nobody suitable is left: go on with fewer
                continue
            return self._take(found, left, reason="in place of " + ", ".join(sorted(left)))
        self.waiting.log.warning("fedwise: nobody can replace %s", ", ".join(sorted(left)))
        return ()

    def _take(self, found: Selection, left: Mapping[str, str], *, reason: str) -> tuple[str, ...]:
        before = set(self.members)
        self.selection, self.members = found, self._nodes_of(found.clients)
        for name in sorted(before - set(self.members)):
            self._note("left", (name,), left.get(name, reason))
        came = tuple(sorted(set(self.members) - before))
        self._note("came", came, reason)
        if before != set(self.members):
            self.changed_members()
            self.waiting.log.info("fedwise: the federation is now %s", ", ".join(self.members))
        return came

    def _ask(self, plan: Any, nodes: Sequence[Node], timeout: float) -> Any:
        waiting = Waiting(
            timeout, self.waiting.grace, len(nodes), len(nodes), self.waiting.poll, self.waiting.log
        )
        return inquire(self.channel, plan, waiting, only=nodes, accept_flagged=self.accept_flagged)

    def _pool(self, releases: Sequence[Release]) -> None:
        self.releases = tuple(sorted(releases, key=lambda made: (made.client, made.plan.number)))
        self.pool = Pool.of(self.releases, accept_flagged=self.accept_flagged)

    def _away(self, clients: Iterable[str]) -> set[str]:
        online = set(self.channel.online())
        return {name for name in clients if self.nodes[name] not in online}

    def _nodes_of(self, clients: Iterable[str]) -> dict[str, Node]:
        return {name: self.nodes[name] for name in sorted(clients)}

    def _note(
        self, kind: Literal["left", "came", "joined", "renewed"], names: Iterable[str], why: str
    ) -> None:
        for name in names:
            change = Change(self.rounds, kind, name, why)
            self.changes.append(change)
            self.waiting.log.info("fedwise: %s", change)
