"""Exchange: messages out, replies in, and the question whether it is worth waiting for the rest.

Flower waits for the whole timeout when a node was killed. Here waiting ends when the silent nodes are
offline, or when enough have answered and nobody new has for a while.
"""

from __future__ import annotations

import time
from collections.abc import Sequence, Set

from flwr.app import Message
from flwr.serverapp import Grid

#: Looks in a row that must find all silent nodes offline before they are given up.
_GIVE_UP = 3
#: Flower's error code for a node that is not there.
_OFFLINE = 5


class Exchange:
    """One round of messages.

    Parameters
    ----------
    grid
        Where they go.
    timeout
        Seconds for everything; None waits without end.
    grace
        Seconds to wait for stragglers after the last answer, once `enough` have answered; None: all of
        `timeout`.
    """

    def __init__(self, grid: Grid, *, timeout: float | None, grace: float | None) -> None:
        self.grid, self.grace = grid, grace
        self.nodes: dict[str, int] = {}
        self.replies: dict[str, Message] = {}
        self._heard = time.monotonic()
        self._deadline = None if timeout is None else self._heard + timeout
        self._offline = 0

    @property
    def left(self) -> float:
        """Seconds left."""
        return float("inf") if self._deadline is None else max(self._deadline - time.monotonic(), 0.0)

    @property
    def asked(self) -> set[int]:
        """Nodes a message was sent to."""
        return set(self.nodes.values())

    @property
    def answers(self) -> dict[int, Message]:
        """First reply of each node that answered."""
        out: dict[int, Message] = {}
        for number, reply in self.replies.items():
            out.setdefault(self.nodes[number], reply)
        return out

    @property
    def quiet(self) -> float:
        """Seconds since the last reply."""
        return time.monotonic() - self._heard

    @property
    def lost(self) -> set[int]:
        """Nodes whose only reply is Flower's: the node went offline before it took the message."""
        return {
            node for node, reply in self.answers.items() if reply.has_error() and reply.error.code == _OFFLINE
        }

    def forget(self, nodes: Set[int]) -> None:
        """Drop what was sent to some nodes, so that they can be asked again."""
        for number in [number for number, node in self.nodes.items() if node in nodes]:
            del self.nodes[number]
            self.replies.pop(number, None)

    def send(self, messages: Sequence[Message]) -> None:
        """Push messages. Flower writes each one's id into the message it was given."""
        list(self.grid.push_messages(list(messages)))
        self.nodes.update({message.metadata.message_id: message.metadata.dst_node_id for message in messages})

    def pull(self) -> None:
        """Take in what has come."""
        waiting = [number for number in self.nodes if number not in self.replies]
        for reply in self.grid.pull_messages(waiting) if waiting else ():
            number = reply.metadata.reply_to_message_id
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
        gone = silent.isdisjoint(self.grid.get_node_ids())
        self._offline = self._offline + 1 if gone else 0
        return self._offline >= _GIVE_UP

    def sleep(self, poll: float) -> None:
        """Wait a little, not past the end."""
        time.sleep(min(poll, self.left))
