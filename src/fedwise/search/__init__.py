"""Search: exact where possible, fast everywhere, with evidence."""

from .annealing import Annealing
from .exact import Exact
from .frontier import Frontier, frontier, pareto
from .greedy import Greedy
from .problem import PFL, Objective
from .select import select
from .selection import Selection

__all__ = [
    "PFL",
    "Annealing",
    "Exact",
    "Frontier",
    "Greedy",
    "Objective",
    "Selection",
    "frontier",
    "pareto",
    "select",
]
