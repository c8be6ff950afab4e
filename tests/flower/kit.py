"""What the Flower tests share: nodes in this process, a spy on the Grid, a stand-in choice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from flwr.app import Message
from flwr.clientapp import ClientApp

from fedwise.flower import InProcessGrid, release_app
from fedwise.flower.grid import GridView
from fedwise.pool.pool import Pool
from owners import NAMES as NAMES
from owners import make_node as make_node
from owners import make_nodes as make_nodes


def make_grid(
    root: Path, names: Sequence[str] = NAMES, app: ClientApp | None = None, **policy: Any
) -> InProcessGrid:
    """Nodes in this process that answer plans."""
    return InProcessGrid(release_app() if app is None else app, make_nodes(root, names, **policy))


def first(pool: Pool, k: int, **_: Any) -> Any:
    """A stand-in for `fedwise.select`: the first k names."""
    return SimpleNamespace(clients=pool.clients[:k])


class SpyGrid(GridView):
    """Writes down every message that goes out and every reply that comes in."""

    def __init__(self, grid: Any) -> None:
        super().__init__(grid)
        self.sent: list[Message] = []
        self.received: list[Message] = []

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        found = list(messages)
        self.sent += found
        return self.grid.push_messages(found)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        found = list(self.grid.pull_messages(message_ids))
        self.received += found
        return found

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        found = list(messages)
        self.sent += found
        replies = list(self.grid.send_and_receive(found, timeout=timeout))
        self.received += replies
        return replies
