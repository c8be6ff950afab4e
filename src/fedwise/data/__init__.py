"""Census tasks and data: shipped schemas, real records where they are available, synthetic ones.

`schemas` and `schema` give the shipped schema files; `fedwise.data.acs` loads real PUMS records,
`fedwise.data.synthetic` generates artificial ones, `fedwise.data.split` holds rows out for testing.
"""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

from ..errors import SchemaError, nearest

if TYPE_CHECKING:
    from ..schema.schema import Schema

__all__ = ["schema", "schema_text", "schemas"]


def schemas() -> list[str]:
    """Names of the schemas that ship with fedwise."""
    folder = resources.files(__package__) / "schemas"
    return sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml"))


def schema_text(name: str) -> str:
    """The shipped schema `name` as TOML text with its comments."""
    if name not in schemas():
        raise SchemaError(
            f"schema must be one that ships with fedwise, got '{name}'{nearest(name, schemas())}"
        )
    return (resources.files(__package__) / "schemas" / f"{name}.toml").read_text(encoding="utf-8")


def schema(name: str) -> Schema:
    """The shipped schema `name`, such as ``income``; `schemas` lists them.

    Raises
    ------
    SchemaError
        No such schema; the message suggests the nearest.
    """
    from ..schema.schema import Schema

    return Schema.parse(schema_text(name), where=f"shipped schema '{name}'")
