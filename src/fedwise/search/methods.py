"""Methods by name, and the one that ``auto`` stands for."""

from __future__ import annotations

from ..errors import FedwiseError, nearest
from .annealing import Annealing
from .exact import Exact
from .greedy import Greedy
from .kernels import ClippedSpec
from .outcome import Method
from .problem import Problem

#: Cell evaluations that fit in about ten seconds on one core: compiled, plain tables, Python objective.
_AUTO_CELLS = {"consistent": 8e9, "plain": 4e9, "python": 1e8}

METHODS: dict[str, Method] = {
    "annealing": Annealing(),
    "paper": Annealing.paper(),
    "exact": Exact(),
    "greedy": Greedy(),
    "greedy-forward": Greedy("forward"),
    "greedy-backward": Greedy("backward"),
    "greedy-exchange": Greedy("exchange"),
}


def resolve_method(method: Method | str, problem: Problem, work: float) -> Method:
    """The method object for a name. ``auto`` looks at the work, never at a clock: same seed, same answer.

    Parameters
    ----------
    work
        Federations an exact search would visit.
    """
    if not isinstance(method, str):
        if not hasattr(method, "search"):
            raise FedwiseError(
                f"method must be a name or a settings object such as Annealing(), got {method!r}"
            )
        return method
    if method == "auto":
        kind = (
            "python"
            if problem.spec is None
            else "plain"
            if isinstance(problem.spec, ClippedSpec)
            else "consistent"
        )
        return Exact() if work * problem.width <= _AUTO_CELLS[kind] else Annealing()
    if method not in METHODS:
        raise FedwiseError(f"method '{method}' is not known{nearest(method, ['auto', *METHODS])}")
    return METHODS[method]
