"""Point: the best federation found for one size, or for one emphasis on fairness."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from ..objective.pfl import Terms

T = TypeVar("T")


class Point(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A federation on a frontier. What was not computed is ``None`` and left out of JSON.

    Parameters
    ----------
    k, loss, clients
        The federation, its size and its loss.
    terms, std_error
        The four terms of the loss in bits, and the standard error of the loss under the privacy noise.
    status
        What the search proves, as in a selection.
    share
        The emphasis on fairness that found it: 0 none, 1 nothing else.
    unfairness, utility
        ``alpha·direct + beta·proxy`` bias and ``lam·signal − gamma·redundancy``; their difference is the loss.
    """

    k: int
    loss: float
    clients: tuple[str, ...]
    terms: Terms | None = None
    std_error: float | None = None
    status: str | None = None
    share: float | None = None
    unfairness: float | None = None
    utility: float | None = None


def undominated(
    found: Iterable[T], *, cost: Callable[[T], float], gain: Callable[[T], float]
) -> tuple[T, ...]:
    """Those that no other one matches on both counts and beats on one, cheapest first. Of equal ones the first."""
    front: list[T] = []
    best = -math.inf
    for item in sorted(found, key=lambda item: (cost(item), -gain(item))):
        if gain(item) > best:
            best = gain(item)
            front.append(item)
    return tuple(front)
