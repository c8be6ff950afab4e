"""Channel: Flower's Grid as the coordinator's core sees it, messages out and bytes in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from flwr.app import Message
from flwr.serverapp import Grid

from ..coordinator.channel import Failure, Node
from . import wire

#: Flower's error code for a node that is not there.
_OFFLINE = 5
#: Names of Flower's error codes; texts of clients are not repeated.
ERRORS = {
    1: "its app could not be loaded",
    2: "its app raised an error",
    3: "its message was lost",
    4: "its reply was lost",
    5: "the node is offline",
    6: "a mod refused",
    7: "its app bundle is invalid",
    8: "its app crashed",
}


class FlowerChannel:
    """Asks nodes through a Grid."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    def online(self) -> Iterable[Node]:
        """Nodes that are connected now."""
        return list(self.grid.get_node_ids())

    def ask(self, nodes: Sequence[Node], request: bytes, *, seconds: float) -> Mapping[str, Node]:
        """Send a request that lives for so many seconds."""
        content = wire.carry(request)
        return self.push([Message(content, node, wire.MESSAGE_TYPE, ttl=seconds) for node in nodes])

    def push(self, messages: Sequence[Message]) -> dict[str, Node]:
        """Send messages. Flower writes each one's id into the message it was given."""
        list(self.grid.push_messages(list(messages)))
        return {message.metadata.message_id: message.metadata.dst_node_id for message in messages}

    def pull(self, tickets: Sequence[str]) -> Iterable[tuple[str, Message]]:
        """Replies that have come to these messages."""
        return [(reply.metadata.reply_to_message_id, reply) for reply in self.grid.pull_messages(tickets)]

    def lost(self, reply: Message) -> bool:
        """Whether Flower itself replied that the node is offline."""
        return bool(reply.has_error() and reply.error.code == _OFFLINE)

    def read(self, reply: Message) -> bytes | Failure:
        """The answer's bytes, or why there is none."""
        if reply.has_error():
            return Failure(ERRORS.get(reply.error.code, "unknown error"))
        return wire.unwrap(reply) or b""
