"""Search: exact where possible, fast everywhere, with evidence."""

from .annealing import Annealing
from .constraints import Constraints
from .entry import select
from .exact import Exact
from .frontiers import Frontier, frontier, pareto
from .greedy import Greedy
from .point import Point
from .problem import PFL, Objective
from .selection import Selection

__all__ = [
    "PFL",
    "Annealing",
    "Constraints",
    "Exact",
    "Frontier",
    "Greedy",
    "Objective",
    "Point",
    "Selection",
    "frontier",
    "pareto",
    "select",
]
