"""Schema: the public columns, their domains and roles, and one way to read any frame by them."""

from .layout import Layout as Layout
from .schema import Column as Column
from .schema import Role as Role
from .schema import Schema as Schema
