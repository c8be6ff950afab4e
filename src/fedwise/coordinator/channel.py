"""Channel: the little a coordinator needs from an engine. An adapter for a new engine implements this."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

#: How an engine names a node: a number (Flower) or a text (NVFlare).
Node = int | str
#: An engine's own form of a reply.
R = TypeVar("R")


def order(node: Node) -> tuple[int, str]:
    """Sorts numbers in their order and names in theirs."""
    return (node, "") if isinstance(node, int) else (0, node)


class Failure(NamedTuple):
    """A node that gave no answer of its own. The reason is the adapter's, never a text of the node."""

    reason: str


class Transport(Protocol[R]):
    """Replies to messages that were sent, in the engine's own form."""

    def online(self) -> Iterable[Node]:
        """Nodes that are connected now."""
        ...

    def pull(self, tickets: Sequence[str]) -> Iterable[tuple[str, R]]:
        """Replies that have come to these messages, each once."""
        ...

    def lost(self, reply: R) -> bool:
        """Whether a reply is the engine's own: the node went offline before it took the message."""
        ...


class Channel(Transport[R], Protocol[R]):
    """A transport that can also ask: bytes out, bytes in."""

    def ask(self, nodes: Sequence[Node], request: bytes, *, seconds: float) -> Mapping[str, Node]:
        """Send a request that lives for so many seconds. Returns the node of each message by its number."""
        ...

    def read(self, reply: R) -> bytes | Failure:
        """The answer's bytes, or why there is none."""
        ...
