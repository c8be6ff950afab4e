"""Flower: proactive selection as a few lines in an app people already have.

On a node, `release_app` (or `release_mod`) answers a plan under the owner's policy file. On the server,
`select_federation` asks every node and returns the selection with a Grid limited to the chosen nodes.
Only modules of this package import flwr.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ..errors import MissingExtra

if TYPE_CHECKING:
    from ..owner.policy import Policy as Policy
    from .client_app import release_app as release_app
    from .client_app import release_mod as release_mod
    from .grid import FederationGrid as FederationGrid
    from .guard import guard_mod as guard_mod
    from .inprocess import InProcessGrid as InProcessGrid
    from .secagg import SecAgg as SecAgg
    from .secagg import secagg_mod as secagg_mod
    from .secagg import secagg_mod_for as secagg_mod_for
    from .server_app import Absence as Absence
    from .server_app import Federation as Federation
    from .server_app import select_federation as select_federation
    from .strategy import FedwiseStrategy as FedwiseStrategy
    from .training import initial_arrays as initial_arrays
    from .training import train_app as train_app

_HOME = {
    "Absence": ".server_app",
    "Federation": ".server_app",
    "FederationGrid": ".grid",
    "FedwiseStrategy": ".strategy",
    "InProcessGrid": ".inprocess",
    "Policy": "..owner.policy",
    "SecAgg": ".secagg",
    "guard_mod": ".guard",
    "initial_arrays": ".training",
    "release_app": ".client_app",
    "release_mod": ".client_app",
    "secagg_mod": ".secagg",
    "secagg_mod_for": ".secagg",
    "select_federation": ".server_app",
    "train_app": ".training",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fedwise.flower' has no attribute '{name}'")
    try:
        value = getattr(
            importlib.import_module(
                _HOME[name] if _HOME[name].startswith(".") else f".{_HOME[name]}", __name__
            ),
            name,
        )
    except ModuleNotFoundError as cause:
        if (cause.name or "").split(".")[0] == "flwr":
            raise MissingExtra("Flower integration", "flower") from None
        raise
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
