"""fedwise: choose who trains before anyone trains.

The public API. Heavy modules load when a name is first used, so that ``import fedwise`` is instant.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .errors import FedwiseError as FedwiseError
    from .estimation import estimate as estimate
    from .forecasting import Forecast as Forecast
    from .forecasting import Forecaster as Forecaster
    from .objective.pfl import Terms as Terms
    from .objective.pfl import Weights as Weights
    from .owner.ledger import Ledger as Ledger
    from .owner.release import Release as Release
    from .owner.release import release as release
    from .planning import Plan as Plan
    from .planning import plan as plan
    from .pool.pool import Pool as Pool
    from .schema.schema import Column as Column
    from .schema.schema import Role as Role
    from .schema.schema import Schema as Schema
    from .search import Annealing as Annealing
    from .search import Constraints as Constraints
    from .search import Exact as Exact
    from .search import Greedy as Greedy
    from .search import Selection as Selection
    from .search.frontier import frontier as frontier
    from .search.frontier import pareto as pareto
    from .search.select import select as select

_HOME = {
    "Annealing": "search",
    "Column": "schema",
    "Constraints": "search",
    "Exact": "search",
    "FedwiseError": "errors",
    "Forecast": "forecasting",
    "Forecaster": "forecasting",
    "Greedy": "search",
    "Ledger": "owner.ledger",
    "Plan": "planning",
    "Pool": "pool.pool",
    "Release": "owner.release",
    "Role": "schema",
    "Schema": "schema",
    "Selection": "search",
    "Terms": "objective",
    "Weights": "objective",
    "estimate": "estimation",
    "frontier": "search.frontier",
    "pareto": "search.frontier",
    "plan": "planning",
    "release": "owner.release",
    "select": "search.select",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'fedwise' has no attribute '{name}'")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
