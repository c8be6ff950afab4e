"""Flower: proactive selection as a few lines in an app people already have.

On a node, `release_app` (or `release_mod`) answers a plan under the owner's policy file. On the server,
`select_federation` asks every node and returns the selection with a Grid limited to the chosen nodes.
Only modules of this package import flwr. The names are those ``__init__.pyi`` beside this file imports; a module
loads when one of its names is first used, so that a node does not load what only a server needs.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import Any

import lazy_loader

from ..errors import FedwiseError, MissingExtra

#: The oldest version of flwr that was tested; tools/flower_versions.py runs both ends of the range.
OLDEST = "1.38"

_load, _, _names = lazy_loader.attach_stub(__name__, __file__)
__all__ = sorted([*_names, "Policy"])


def __getattr__(name: str) -> Any:
    if name == "Policy":  # of another package, which a stub cannot name; an owner has one without Flower
        from ..owner.policy import Policy

        return Policy
    try:
        return _load(name)
    except ImportError as cause:
        if (cause.name or "").split(".")[0] == "flwr":
            raise _unusable() from None
        raise


def _unusable() -> Exception:
    """Flower is missing, or there in a version that this cannot use."""
    try:
        importlib.import_module("flwr")
        found = importlib.metadata.version("flwr")
    except ImportError:
        return MissingExtra("Flower integration", "flower")
    return FedwiseError(
        f"Flower integration must have flwr {OLDEST} or newer, got {found}; run: pip install 'fedwise[flower]'"
    )


def __dir__() -> list[str]:
    return list(__all__)
