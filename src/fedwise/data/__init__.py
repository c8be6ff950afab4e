"""Census tasks and data: shipped schemas, real records where they are available, synthetic ones.

`schemas` and `schema` give the shipped schema files; `fedwise.data.acs` loads real PUMS records,
`fedwise.data.synthetic` generates artificial ones, `fedwise.data.split` holds rows out for testing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..schema.shipped import shipped_names as schemas
from ..schema.shipped import shipped_text as schema_text

if TYPE_CHECKING:
    from ..schema.schema import Schema

__all__ = ["schema", "schema_text", "schemas"]


def schema(name: str) -> Schema:
    """The shipped schema `name`, such as ``income``; `schemas` lists them.

    Raises
    ------
    SchemaError
        No such schema; the message suggests the nearest.
    """
    from ..schema.schema import Schema

    return Schema.parse(schema_text(name), where=f"shipped schema '{name}'")
