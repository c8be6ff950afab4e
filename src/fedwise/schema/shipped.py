"""Shipped: the schemas that come with fedwise, by name."""

from __future__ import annotations

from importlib import resources

from ..errors import SchemaError, nearest


def shipped_names() -> list[str]:
    """Names of the schemas that ship with fedwise."""
    folder = resources.files("fedwise") / "data" / "schemas"
    return sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml"))


def shipped_text(name: str) -> str:
    """The shipped schema `name` as TOML text with its comments."""
    if name not in shipped_names():
        raise SchemaError(
            f"schema must be one that ships with fedwise, got '{name}'{nearest(name, shipped_names())}"
        )
    folder = resources.files("fedwise") / "data" / "schemas"
    return (folder / f"{name}.toml").read_text(encoding="utf-8")
