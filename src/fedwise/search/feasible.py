"""Feasible federations: where searches start, and whom to blame when there is none."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..errors import FedwiseError, Infeasible
from .constraints import Constraints, Limits, satisfied

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_DRAWS = 20


def check(constraints: Constraints, clients: tuple[str, ...], records: Floats, k: int) -> Limits:
    """Resolve constraints for size `k`, or raise `Infeasible` that names the constraint to blame.

    Whether any federation exists is decided exactly, by integer programming; the blame falls on a
    constraint whose removal alone makes one exist.
    """
    if isinstance(k, bool) or not isinstance(k, int | np.integer):
        raise FedwiseError(f"k must be an integer, got {k!r}")
    if not 1 <= k <= len(clients):
        raise FedwiseError(f"k must be between 1 and the {len(clients)} clients of the pool, got {k}")
    limits = constraints.resolve(clients, records)
    if len(limits.fixed) > k:
        raise Infeasible(f"include names {len(limits.fixed)} clients but k is {k}; raise k or include fewer")
    if len(limits.fixed) + len(limits.free) < k:
        left = len(limits.fixed) + len(limits.free)
        least = constraints.min_client_records
        if least is not None and len(clients) - len(constraints.exclude) >= k:
            raise Infeasible(
                f"min_client_records={least:g} leaves {left} clients but k is {k}; lower one of the two"
            )
        raise Infeasible(f"exclude leaves {left} clients but k is {k}; lower k or exclude fewer")
    if not _needs_programming(limits) or _solve(limits, k, np.zeros(len(clients))) is not None:
        return limits
    for words, rest in constraints.relaxations():
        relaxed = rest.resolve(clients, records)
        enough = len(relaxed.fixed) <= k <= len(relaxed.fixed) + len(relaxed.free)
        if enough and _solve(relaxed, k, np.zeros(len(clients))) is not None:
            raise Infeasible(f"no federation of {k} clients satisfies {words}{_advice(words, limits, k)}")
    together = " and ".join(words for words, _ in constraints.relaxations())
    raise Infeasible(
        f"no federation of {k} clients satisfies {together} together; relax at least two of them"
    )


def start(limits: Limits, k: int, seed: int, chain: int) -> Ints:
    """A random feasible federation, reproducible from (seed, chain). Assumes `check` passed."""
    rng = np.random.default_rng([seed & 0xFFFFFFFFFFFFFFFF, chain])
    slots = k - len(limits.fixed)
    for _ in range(_DRAWS):
        drawn = rng.choice(limits.free, size=slots, replace=False)
        members = np.concatenate([limits.fixed, drawn]).astype(np.int64)
        if satisfied(limits, members):
            return np.sort(members)
    # Feasible federations are rare: the integer program finds a vertex in a random direction.
    found = _solve(limits, k, rng.normal(size=len(limits.group)))
    if found is None:
        raise Infeasible(f"no federation of {k} clients satisfies the constraints; relax them")
    return found


def _needs_programming(limits: Limits) -> bool:
    return len(limits.bounds) > 0 or len(limits.caps) > 0


def _solve(limits: Limits, k: int, direction: Floats) -> Ints | None:
    """The feasible federation that minimises Σ direction, or ``None``."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    clients = len(limits.group)
    low, high = np.zeros(clients), np.zeros(clients)
    high[limits.free] = 1.0
    low[limits.fixed] = high[limits.fixed] = 1.0
    rows = [LinearConstraint(np.ones((1, clients)), k, k)]
    if len(limits.bounds):
        # Scaled to one, so that the solver's absolute tolerance means the same for every unit.
        scale = np.maximum(np.abs(limits.linear).max(axis=1, initial=0.0), 1e-300)
        rows.append(LinearConstraint(limits.linear / scale[:, None], -np.inf, limits.bounds / scale))
    if len(limits.caps):
        grouped = np.flatnonzero(limits.group >= 0)
        counts = csr_array(
            (np.ones(len(grouped)), (limits.group[grouped], grouped)), shape=(len(limits.caps), clients)
        )
        rows.append(LinearConstraint(counts, -np.inf, limits.caps))
    solved = milp(direction, constraints=rows, integrality=np.ones(clients), bounds=Bounds(low, high))
    if solved.x is None:
        return None
    members = np.flatnonzero(solved.x > 0.5).astype(np.int64)
    return members if len(members) == k and satisfied(limits, members) else None


def _advice(words: str, limits: Limits, k: int) -> str:
    """What would do: the reachable maximum of records, the reachable minimum of costs."""
    if words.startswith(("min_records", "budget")):
        row = 0 if words.startswith("min_records") else len(limits.bounds) - 1
        others = [i for i in range(len(limits.bounds)) if i != row]
        rest = limits._replace(linear=limits.linear[others], bounds=limits.bounds[others])
        best = _solve(rest, k, limits.linear[row])
        if best is not None:
            reached = abs(float(limits.linear[row, best].sum()))
            if words.startswith("min_records"):
                return f"; the largest has about {reached:.0f} records, raise k or lower min_records"
            return f"; the cheapest costs {reached:g}, lower k or raise the budget"
    return "; relax it"
