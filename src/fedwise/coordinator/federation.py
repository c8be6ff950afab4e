"""Federation: the clients chosen to train, as a coordinator holds them while training goes on."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from ..owner.replies import records
from ..search.selection import Selection
from .answers import Absence
from .channel import Channel, Node
from .choice import Choice
from .gathering import Gathered
from .inquiry import Waiting


class Federation:
    """The chosen federation.

    Attributes
    ----------
    selection
        What `fedwise.select` returned for the pool.
    members
        Node of every chosen client.
    pool
        All releases that were trusted.
    nodes
        Node of every client in the pool.
    absent
        Every other node that was asked, with the reason.
    """

    def __init__(self, channel: Channel[Any], gathered: Gathered, choice: Choice, waiting: Waiting) -> None:
        self.channel, self.choice, self.waiting = channel, choice, waiting
        self.pool, self.nodes, self.absent, self.releases = gathered
        self.selection: Selection = choice.of(self.pool)
        self.members: dict[str, Node] = {name: self.nodes[name] for name in sorted(self.selection.clients)}
        waiting.log.info("fedwise: the federation is %s", ", ".join(self.members))

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
        """Nodes whose owner said no."""
        return tuple(a for a in self.absent if a.kind == "declined")

    @property
    def flagged(self) -> tuple[Absence, ...]:
        """Nodes whose release is not trusted."""
        return tuple(a for a in self.absent if a.kind in ("flagged", "duplicate"))

    @cached_property
    def sizes(self) -> dict[str, float]:
        """Number of records of each chosen client, as its noisy tables tell it."""
        return {made.client: records(made) for made in self.releases if made.client in self.members}
