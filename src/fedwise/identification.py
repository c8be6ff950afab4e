"""Identification: what a calibration determines about the weights, and what it leaves free.

Many weights rank federations almost equally well. Weights are compared by what they do: the share of a term is its
weight times its spread over the federations, over the sum for all four terms. Shares are drawn evenly; those that
score within a standard error of the best are kept. A direction in which the kept shares vary much less than all shares
is determined by the data; the others are free, and single weights along them mean nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import numpy.typing as npt

from .objective.pfl import TERM_NAMES

Floats = npt.NDArray[np.float64]

DRAWS = 2000
#: Kept shares at least; where fewer are good enough, the best so many.
LEAST_KEPT = 50
#: A balance is determined if the kept shares vary along it at most by this part of how all shares do, and the ends
#: of its range of 90% differ at most by this factor: small shares vary little, whatever their ratio.
DETERMINED, WITHIN = 0.5, 10.0
#: Terms that take part in a direction: loadings below this are left out of its name.
_LOADING = 0.3


class Direction(msgspec.Struct, frozen=True):
    """A direction of the shares.

    `freedom` is the standard deviation of the kept shares along it relative to all shares: 0 is determined, 1 free.
    `loadings` are by term. `low`, `median` and `high` are the 5%, 50% and 95% quantiles, over the kept
    shares, of what the terms of `against` weigh for each 1 of the terms of `of`.
    """

    of: list[str]
    against: list[str]
    freedom: float
    loadings: dict[str, float]
    low: float
    median: float
    high: float

    @property
    def determined(self) -> bool:
        """Whether the data says anything about this balance."""
        return self.freedom <= DETERMINED and self.high <= WITHIN * self.low

    @property
    def balance(self) -> str:
        """The two sides in words."""
        sides = (" + ".join(name.replace("_", " ") for name in side) for side in (self.of, self.against))
        return " : ".join(sides)


class Identification(msgspec.Struct, frozen=True):
    """Directions of the weights, best determined first, and how many of all weights do as well."""

    directions: list[Direction]
    as_good: float
    says: str


def identify(
    terms: Floats, score: Callable[[Floats], Floats], best: float, *, seed: int = 0
) -> Identification:
    """Find which balance of the terms the federations determine.

    Parameters
    ----------
    terms
        Shape (federations, 4).
    score
        Scores of weights, shape (draws, 4) to (draws,).
    best
        The best score found by fitting.
    """
    rng = np.random.default_rng((seed, 0x1DE))
    spread = terms.std(axis=0)
    spread[spread < 1e-9 * max(float(np.abs(terms).max()), 1e-300)] = 0.0  # a constant, up to rounding
    moving = np.flatnonzero(spread > 0)
    shares = np.zeros((DRAWS, len(spread)))
    shares[:, moving] = rng.dirichlet(np.ones(len(moving)), DRAWS)
    weights = np.divide(shares, spread, out=np.zeros_like(shares), where=spread > 0)
    found = score(weights)
    # A rank correlation of n pairs without relation has a standard error of 1/√(n − 1).
    good = found >= best - 1 / np.sqrt(max(len(terms) - 1, 1))
    kept = shares[good] if good.sum() >= LEAST_KEPT else shares[np.argsort(-found)[:LEAST_KEPT]]
    directions = _directions(kept, moving)
    as_good = float(good.mean())
    return Identification(directions, as_good, _say(directions, as_good))


def _directions(kept: Floats, moving: npt.NDArray[np.intp]) -> list[Direction]:
    """Principal axes of the kept shares; the axis along which all shares sum to 1 is none."""
    count = len(moving)
    if count < 2:
        return []
    inside = kept[:, moving]
    # Evenly drawn shares of c terms have variance 1/(c(c + 1)) along every axis.
    values, axes = np.linalg.eigh(np.cov(inside.T))
    proper = [k for k in range(count) if abs(axes[:, k].sum()) < 0.5 * np.sqrt(count)]
    found = []
    for k in proper:
        axis = axes[:, k] if axes[np.argmax(np.abs(axes[:, k])), k] > 0 else -axes[:, k]
        of, against = axis > _LOADING, axis < -_LOADING
        if not against.any():
            against = axis < 0
        ratio = inside[:, against].sum(axis=1) / np.maximum(inside[:, of].sum(axis=1), 1e-9)
        low, median, high = np.quantile(ratio, [0.05, 0.5, 0.95])
        found.append(
            Direction(
                of=[TERM_NAMES[j] for j in moving[of]],
                against=[TERM_NAMES[j] for j in moving[against]],
                freedom=float(min(1.0, np.sqrt(max(values[k], 0.0) * count * (count + 1)))),
                loadings={TERM_NAMES[j]: float(x) for j, x in zip(moving, axis, strict=True)},
                low=float(low),
                median=float(median),
                high=float(high),
            )
        )
    return found


def _say(directions: list[Direction], as_good: float) -> str:
    fixed = [d for d in directions if d.determined]
    tail = f"{as_good:.0%} of all weights rank these federations as well within a standard error"
    if not fixed:
        return f"the data determines no balance of the terms, and no single weight; {tail}"
    balances = " and ".join(
        f"{d.balance} (1 : {d.median:.2g}, 90% between {d.low:.2g} and {d.high:.2g})" for d in fixed
    )
    if len(fixed) == len(directions):
        return f"the data determines every balance of the terms: {balances}; {tail}"
    return f"the data determines the balance {balances}; the weights alone are not determined; {tail}"
