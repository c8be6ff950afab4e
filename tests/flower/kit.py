"""What the Flower tests share: nodes with data, schema and policy on disk, a spy on the Grid, a stand-in choice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
from flwr.app import Message
from flwr.clientapp import ClientApp

from conftest import SMALL, make_people
from fedwise.flower import InProcessGrid, release_app
from fedwise.flower.grid import GridView
from fedwise.pool.pool import Pool

NAMES = ("ash", "birch", "cedar", "date", "elm")


def make_node(
    root: Path, name: str, *, rows: int = 400, seed: int = 0, frame: pl.DataFrame | None = None, **policy: Any
) -> dict[str, Any]:
    """One owner's directory: rows, schema, policy. Returns the node's configuration."""
    home = root / name
    home.mkdir(parents=True)
    (make_people(rows, seed) if frame is None else frame).write_parquet(home / "rows.parquet")
    (home / "schema.toml").write_text(SMALL)
    fields = {
        "client": name,
        "schema": "schema.toml",
        "data": "rows.parquet",
        "max_epsilon": 1.0,
        "ledger": "budget.db",
    }
    fields |= policy
    text = "".join(f"{key} = {_toml(value)}\n" for key, value in fields.items() if value is not None)
    (home / "policy.toml").write_text(text)
    return {"policy": str(home / "policy.toml")}


def make_nodes(root: Path, names: Sequence[str] = NAMES, **policy: Any) -> list[dict[str, Any]]:
    """Several owners with different rows."""
    return [make_node(root, name, rows=300 + 100 * i, seed=i, **policy) for i, name in enumerate(names)]


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


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return repr(value)
