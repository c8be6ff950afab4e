"""fedwise: choose who trains before anyone trains.

The public API. Heavy modules load when a name is first used, so that ``import fedwise`` is instant.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .errors import FedwiseError as FedwiseError
    from .forecast import Forecast as Forecast
    from .forecast import Forecaster as Forecaster
    from .objective import Terms as Terms
    from .objective import Weights as Weights
    from .plan import Plan as Plan
    from .plan import plan as plan
    from .pool import Pool as Pool
    from .privacy.ledger import Ledger as Ledger
    from .release import Release as Release
    from .release import release as release
    from .schema import Column as Column
    from .schema import Role as Role
    from .schema import Schema as Schema
    from .search import Annealing as Annealing
    from .search import Exact as Exact
    from .search import Greedy as Greedy
    from .search import Selection as Selection
    from .search.frontier import frontier as frontier
    from .search.frontier import pareto as pareto
    from .search.select import select as select

_HOME = {
    "Annealing": "search",
    "Column": "schema",
    "Exact": "search",
    "FedwiseError": "errors",
    "Forecast": "forecast",
    "Forecaster": "forecast",
    "Greedy": "search",
    "Ledger": "privacy.ledger",
    "Plan": "plan",
    "Pool": "pool",
    "Release": "release",
    "Role": "schema",
    "Schema": "schema",
    "Selection": "search",
    "Terms": "objective",
    "Weights": "objective",
    "frontier": "search.frontier",
    "pareto": "search.frontier",
    "plan": "plan",
    "release": "release",
    "select": "search.select",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'fedwise' has no attribute '{name}'")


class _Package(ModuleType):
    """Keeps ``fedwise.plan`` the function when the import system wants to bind the module plan.py there."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
