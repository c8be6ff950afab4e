"""Grid: a view of Flower's Grid that knows only the chosen nodes, so any strategy trains on them unchanged."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from ..coordinator.exchange import Exchange
from ..errors import CheckFailed, FedwiseError
from .channel import ERRORS, FlowerChannel

_LOG = logging.getLogger("flwr")
_POLL = 0.5


class Missing(NamedTuple):
    """Someone who was asked in training and did not deliver."""

    client: str
    message_type: str
    reason: str


class GridView(Grid):  # type: ignore[misc]  # flwr is not typed for us
    """Forwards everything to another Grid."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    def set_run(self, run: Any) -> None:
        """Forwarded."""
        self.grid.set_run(run)

    @property
    def run(self) -> Any:
        """Forwarded."""
        return self.grid.run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Forwarded."""
        return self.grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def get_node_ids(self) -> Iterable[int]:
        """Forwarded."""
        return list(self.grid.get_node_ids())

    def get_nodes(self) -> Iterable[Any]:
        """Forwarded."""
        return list(self.grid.get_nodes())

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Forwarded."""
        return list(self.grid.push_messages(list(messages)))

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Forwarded."""
        return list(self.grid.pull_messages(message_ids))

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Forwarded."""
        return list(self.grid.send_and_receive(list(messages), timeout=timeout))

    def __getattr__(self, name: str) -> Any:
        if name == "grid":
            raise AttributeError(name)
        return getattr(self.grid, name)


class FederationGrid(GridView):
    """The Grid of one federation.

    Other nodes do not exist for a strategy that uses it, and a message to one of them is refused. Replies
    come in the order of the clients' names, so sums of floats do not depend on who was fastest. Who did
    not answer is logged and kept in `missing`.

    Parameters
    ----------
    grid
        Flower's Grid.
    nodes
        Node id of each chosen client.
    grace
        Seconds to wait for stragglers after the last reply, once half have answered. Default: the timeout
        the strategy gives.
    patience
        Seconds without at least two chosen nodes online (or one, of a federation of one) before giving up.
        Flower's strategies wait for nodes without end.
    """

    def __init__(
        self, grid: Grid, nodes: Mapping[str, int], *, grace: float | None = None, patience: float = 600.0
    ) -> None:
        if not nodes:
            raise FedwiseError("federation must hold at least one node, got none")
        super().__init__(grid)
        self.nodes = dict(sorted(nodes.items()))
        self.names = {node: client for client, node in self.nodes.items()}
        self.missing: list[Missing] = []
        self.grace, self.patience = grace, patience
        self._lonely_since: float | None = None

    def get_node_ids(self) -> Iterable[int]:
        """The chosen nodes that are online, in the order of their clients' names.

        Raises
        ------
        CheckFailed
            Hardly any chosen node was online for `patience` seconds.
        """
        online = set(self.grid.get_node_ids())
        found = [node for node in self.nodes.values() if node in online]
        if len(found) >= min(2, len(self.nodes)):
            self._lonely_since = None
        else:
            now = time.monotonic()
            self._lonely_since = self._lonely_since or now
            if now - self._lonely_since > self.patience:
                raise CheckFailed(
                    f"federation has {len(found)} of {len(self.nodes)} nodes online for {self.patience:g} seconds; "
                    "restart the nodes and run again: releases are not drawn twice"
                )
        return found

    def get_nodes(self) -> Iterable[Any]:
        """The chosen nodes that are online."""
        return [node for node in self.grid.get_nodes() if node.node_id in self.names]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Forward to the chosen nodes; a message to anybody else is an error."""
        return list(self.grid.push_messages(self._checked(messages)))

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Forward to the chosen nodes, sort the replies, and note who is missing."""
        asked = self._checked(messages)
        if not asked:
            return []
        channel = FlowerChannel(self.grid)
        exchange: Exchange[Message] = Exchange(channel, timeout=timeout, grace=self.grace)
        exchange.sent(channel.push(asked))
        exchange.pull()
        while not exchange.over(enough=(len(asked) + 1) // 2):
            exchange.sleep(_POLL)
            exchange.pull()
        for message in asked:
            reply = exchange.replies.get(message.metadata.message_id)
            if reply is None:
                self._note(message, "no answer in time")
            elif reply.has_error():
                self._note(message, ERRORS.get(reply.error.code, "unknown error"))
        order = {number: self.names[int(node)] for number, node in exchange.nodes.items()}
        return [reply for _, reply in sorted(exchange.replies.items(), key=lambda item: order[item[0]])]

    def _note(self, message: Message, reason: str) -> None:
        lost = Missing(self.names[message.metadata.dst_node_id], message.metadata.message_type, reason)
        self.missing.append(lost)
        _LOG.warning("fedwise: %s is missing (%s): %s", lost.client, lost.message_type, lost.reason)

    def _checked(self, messages: Iterable[Message]) -> list[Message]:
        found = list(messages)
        for message in found:
            if message.metadata.dst_node_id not in self.names:
                raise FedwiseError(
                    "message must go to a chosen node; clients outside the federation get no messages"
                )
        return found
