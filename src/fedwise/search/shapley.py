"""Shapley values: what each member adds to the value of its federation, averaged over orders of joining."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Shares(NamedTuple):
    """Sampled Shapley value of each member, and its standard error over the orders. Shape (members,)."""

    means: Floats
    errors: Floats


def sample_shapley(
    along: Callable[[Ints], Floats],
    members: int,
    *,
    orders: int,
    rng: np.random.Generator,
    empty: float = 0.0,
    mirrored: bool = False,
) -> Shares:
    """Mean change of the value when a member joins, over random orders of joining.

    Over all members the means sum to the value of the whole federation minus `empty`, whatever orders are drawn.

    Parameters
    ----------
    along
        The value after each joining: positions 0 … members − 1 in order of joining, shape (orders, members),
        to values of the same shape.
    members, orders
        How many members there are, and how many orders to draw; at least two orders, for the error.
    empty
        The value of nobody.
    mirrored
        Use each order backward too, and count both as one: what a member brings early and late cancels.
    """
    paths = np.stack([rng.permutation(members) for _ in range(orders)])
    changes = _changes(along, paths, empty)
    if mirrored:
        changes = changes / 2 + _changes(along, paths[:, ::-1], empty) / 2
    return Shares(changes.mean(axis=0), changes.std(axis=0, ddof=1) / math.sqrt(orders))


def _changes(along: Callable[[Ints], Floats], paths: Ints, empty: float) -> Floats:
    """What each member (column) changed in each order (line)."""
    found = np.empty(paths.shape)
    np.put_along_axis(found, paths, np.diff(along(paths), axis=1, prepend=empty), axis=1)
    return found
