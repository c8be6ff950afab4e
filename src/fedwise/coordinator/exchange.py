"""Exchange: messages out, replies in, and the question whether it is worth waiting for the rest.

Engines wait for the whole timeout when a node was killed. Here waiting ends when the silent nodes are
offline, or when enough have answered and nobody new has for a while.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Set
from typing import Generic

from .channel import Node, R, Transport

#: Looks in a row that must find all silent nodes offline before they are given up.
_GIVE_UP = 3


class Exchange(Generic[R]):
    """One round of messages.

    Parameters
    ----------
    transport
        Where replies come from.
    timeout
        Seconds for everything; None waits without end.
    grace
        Seconds to wait for stragglers after the last answer, once `enough` have answered; None: all of
        `timeout`.
    """

    def __init__(self, transport: Transport[R], *, timeout: float | None, grace: float | None) -> None:
        self.transport, self.grace = transport, grace
        self.nodes: dict[str, Node] = {}
        self.replies: dict[str, R] = {}
        self._heard = time.monotonic()
        self._deadline = None if timeout is None else self._heard + timeout
        self._offline = 0

    @property
    def left(self) -> float:
        """Seconds left."""
        return float("inf") if self._deadline is None else max(self._deadline - time.monotonic(), 0.0)

    @property
    def asked(self) -> set[Node]:
        """Nodes a message was sent to."""
        return set(self.nodes.values())

    @property
    def answers(self) -> dict[Node, R]:
        """First reply of each node that answered."""
        out: dict[Node, R] = {}
        for number, reply in self.replies.items():
            out.setdefault(self.nodes[number], reply)
        return out

    @property
    def quiet(self) -> float:
        """Seconds since the last reply."""
        return time.monotonic() - self._heard

    @property
    def lost(self) -> set[Node]:
        """Nodes whose only reply is the engine's: the node went offline before it took the message."""
        return {node for node, reply in self.answers.items() if self.transport.lost(reply)}

    def forget(self, nodes: Set[Node]) -> None:
        """Drop what was sent to some nodes, so that they can be asked again."""
        for number in [number for number, node in self.nodes.items() if node in nodes]:
            del self.nodes[number]
            self.replies.pop(number, None)

    def sent(self, tickets: Mapping[str, Node]) -> None:
        """Note messages that went out: the node of each by its number."""
        self.nodes.update(tickets)

    def pull(self) -> None:
        """Take in what has come."""
        waiting = [number for number in self.nodes if number not in self.replies]
        for number, reply in self.transport.pull(waiting) if waiting else ():
            if number in self.nodes and number not in self.replies:
                self.replies[number] = reply
                self._heard = time.monotonic()

    def over(self, *, enough: int) -> bool:
        """Whether waiting longer makes no sense."""
        silent = {node for number, node in self.nodes.items() if number not in self.replies}
        if not silent or self.left <= 0:
            return True
        if self.grace is not None and len(self.replies) >= enough and self.quiet >= self.grace:
            return True
        gone = silent.isdisjoint(self.transport.online())
        self._offline = self._offline + 1 if gone else 0
        return self._offline >= _GIVE_UP

    def sleep(self, poll: float) -> None:
        """Wait a little, not past the end."""
        time.sleep(min(poll, self.left))
