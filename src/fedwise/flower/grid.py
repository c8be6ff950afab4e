"""Grid: a view of Flower's Grid that knows only the chosen nodes, so any strategy trains on them unchanged."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
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
        Node id of each chosen client, or the node ids alone. May change between rounds: see `change`.
    grace
        Seconds to wait for stragglers after the last reply, once half have answered. Default: the timeout
        the strategy gives.
    patience
        Seconds without at least two chosen nodes online (or one, of a federation of one) before giving up.
        Flower's strategies wait for nodes without end.
    skip_after
        Leave a node out after it has not delivered in this many training rounds in a row, so that nobody waits for
        it; it is asked again when it has been away and is back. Default: it is asked in every round.
    weights
        Weight of each client in the average, in place of the ``num-examples`` it reports. Default: as reported.
    """

    def __init__(
        self,
        grid: Grid,
        nodes: Mapping[str, int] | Iterable[int],
        *,
        grace: float | None = None,
        patience: float = 600.0,
        skip_after: int | None = None,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(grid)
        self.missing: list[Missing] = []
        self.grace, self.patience = grace, patience
        self.skip_after, self.weights = skip_after, dict(weights or {})
        #: Called after every round of training with the clients that did not deliver, and why.
        self.on_round: Callable[[Mapping[str, str]], None] | None = None
        self._lonely_since: float | None = None
        self._strikes: dict[str, int] = {}
        self.nodes: dict[str, int] = {}
        self.names: dict[int, str] = {}
        self.change(nodes)
        unknown = sorted(set(self.weights) - set(self.nodes))
        if unknown:
            raise FedwiseError(f"weights must name chosen clients, got '{unknown[0]}'")

    def change(self, nodes: Mapping[str, int] | Iterable[int]) -> None:
        """Choose other nodes, from the next message on."""
        if not isinstance(nodes, Mapping):
            nodes = {str(node): node for node in nodes}
        if not nodes:
            raise FedwiseError("federation must hold at least one node, got none")
        self.nodes = dict(sorted(nodes.items()))
        self.names = {node: client for client, node in self.nodes.items()}
        self._strikes = {client: count for client, count in self._strikes.items() if client in self.nodes}

    def get_node_ids(self) -> Iterable[int]:
        """The chosen nodes that are online, in the order of their clients' names.

        Raises
        ------
        CheckFailed
            Hardly any chosen node was online for `patience` seconds.
        """
        online = set(self.grid.get_node_ids())
        for client, node in self.nodes.items():
            if node not in online:
                self._strikes.pop(client, None)  # when it is back, it is asked again
        found = [node for client, node in self.nodes.items() if node in online and not self._skipped(client)]
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
        lost: dict[str, str] = {}
        for message in asked:
            reply = exchange.replies.get(message.metadata.message_id)
            if reply is None:
                self._note(message, "no answer in time", lost)
            elif reply.has_error():
                self._note(message, ERRORS.get(reply.error.code, "unknown error"), lost)
        order = {number: self.names[int(node)] for number, node in exchange.nodes.items()}
        replies = [reply for _, reply in sorted(exchange.replies.items(), key=lambda item: order[item[0]])]
        if asked[0].metadata.message_type.split(".")[0] == "train":
            self._weigh(replies)
            self._end_round(asked, lost)
        return replies

    def _skipped(self, client: str) -> bool:
        return self.skip_after is not None and self._strikes.get(client, 0) >= self.skip_after

    def _weigh(self, replies: list[Message]) -> None:
        for reply in replies:
            weight = self.weights.get(self.names.get(reply.metadata.src_node_id, ""))
            if weight is None or reply.has_error():
                continue
            for record in reply.content.metric_records.values():
                if "num-examples" in record:
                    record["num-examples"] = float(weight)

    def _end_round(self, asked: list[Message], lost: Mapping[str, str]) -> None:
        for message in asked:
            client = self.names[message.metadata.dst_node_id]
            self._strikes[client] = self._strikes.get(client, 0) + 1 if client in lost else 0
            if client in lost and self._skipped(client):
                _LOG.warning("fedwise: %s is left out until it has been away and is back", client)
        if self.on_round is not None:
            self.on_round(lost)

    def _note(self, message: Message, reason: str, missing: dict[str, str]) -> None:
        lost = Missing(self.names[message.metadata.dst_node_id], message.metadata.message_type, reason)
        self.missing.append(lost)
        missing[lost.client] = reason
        _LOG.warning("fedwise: %s is missing (%s): %s", lost.client, lost.message_type, lost.reason)

    def _checked(self, messages: Iterable[Message]) -> list[Message]:
        found = list(messages)
        for message in found:
            if message.metadata.dst_node_id not in self.names:
                raise FedwiseError(
                    "message must go to a chosen node; clients outside the federation get no messages"
                )
        return found
