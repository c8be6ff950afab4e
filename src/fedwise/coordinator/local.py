"""Local channel: nodes that are functions in this process, bytes in and bytes out. The smallest engine there is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from ..owner.policies import Policies
from ..owner.policy import Policy
from ..owner.replies import reply_to
from ..schema.frame import FrameLike
from .channel import Failure, Node

#: What a node does with a request.
Answering = Callable[[bytes], bytes]


class LocalChannel:
    """Asks functions; those `offline` are not listed, those `silent` never answer.

    Parameters
    ----------
    nodes
        What each node does with a request.
    """

    def __init__(self, nodes: Mapping[Node, Answering]) -> None:
        self.nodes = dict(nodes)
        self.offline: set[Node] = set()
        self.silent: set[Node] = set()
        #: Every node that was sent a request, in order.
        self.asked: list[Node] = []
        self._replies: dict[str, bytes] = {}

    def online(self) -> Iterable[Node]:
        """Nodes that are not offline."""
        return [node for node in self.nodes if node not in self.offline]

    def ask(self, nodes: Sequence[Node], request: bytes, *, seconds: float) -> Mapping[str, Node]:
        """Let each node answer at once."""
        tickets: dict[str, Node] = {}
        for node in nodes:
            self.asked.append(node)
            ticket = str(len(self.asked))
            tickets[ticket] = node
            if node not in self.offline | self.silent:
                self._replies[ticket] = self.nodes[node](request)
        return tickets

    def pull(self, tickets: Sequence[str]) -> Iterable[tuple[str, bytes]]:
        """Answers that are there, each once."""
        return [(ticket, self._replies.pop(ticket)) for ticket in tickets if ticket in self._replies]

    def lost(self, reply: bytes) -> bool:
        """Nothing is lost inside a process."""
        return False

    def read(self, reply: bytes) -> bytes | Failure:
        """As it came."""
        return reply


def answering(policy: str | Path, data: Callable[[Policy], FrameLike] | None = None) -> Answering:
    """What a node with this policy file does with a request; rows are where the policy says, or `data`."""

    def rows(terms: Policy) -> FrameLike:
        return data(terms) if data is not None else terms.data or ""

    def answer(request: bytes) -> bytes:
        # Read every time: the owner may have changed the terms since.
        return reply_to(request, lambda plan: Policies.load(policy).for_plan(plan), rows).content

    return answer
