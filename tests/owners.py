"""Owners for tests of every engine: rows, schema and policy on disk, one directory each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from conftest import SMALL, make_people

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


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return repr(value)
