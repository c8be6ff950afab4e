"""Deferred modules: libraries that are loaded when first used, because some commands never use them."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Deferred:
    """Stands for a module and loads it when one of its names is first asked for.

    Type checkers see the real module:

        if TYPE_CHECKING:
            import polars as pl
        else:
            pl = Deferred("polars")
    """

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(import_module(self.__name__), attribute)
        self.__dict__[attribute] = found  # the next question does not come here
        return found
