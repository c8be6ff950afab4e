"""Sizes: what `k` may be. A number, a range, or a text such as ``5:15``."""

from __future__ import annotations

import re

import numpy as np

from ..errors import FedwiseError

#: Anything `parse_sizes` reads.
Sizes = int | str | tuple[int, int] | range


def parse_sizes(k: Sizes, clients: int) -> tuple[int, ...]:
    """The federation sizes to search, increasing.

    Parameters
    ----------
    k
        ``5``, ``"5"``, ``(5, 15)``, ``"5:15"`` (both ends included) or a `range` (as Python reads it).
    clients
        Clients of the pool.

    Raises
    ------
    FedwiseError
        A size is not between 1 and `clients`, or `k` cannot be read.
    """
    if isinstance(k, bool):
        raise FedwiseError(f"k must be an integer, a range or text such as '5:15', got {k!r}")
    if isinstance(k, int | np.integer):
        sizes = [int(k)]
    elif isinstance(k, str):
        match = re.fullmatch(r"\s*(-?\d{1,9})\s*(?::\s*(-?\d{1,9})\s*)?", k)
        if match is None:
            raise FedwiseError(f"k must be an integer or a range such as '5:15', got '{k}'")
        low = int(match[1])
        high = int(match[2]) if match[2] is not None else low
        sizes = _between(low, high, k)
    elif isinstance(k, range):
        sizes = sorted(k)
    elif isinstance(k, tuple) and len(k) == 2 and all(isinstance(x, int) for x in k):
        sizes = _between(k[0], k[1], k)
    else:
        raise FedwiseError(f"k must be an integer, a range or text such as '5:15', got {k!r}")
    if not sizes:
        raise FedwiseError(f"k must hold at least one size, got {k!r}")
    for size in (sizes[0], sizes[-1]):
        if not 1 <= size <= clients:
            raise FedwiseError(f"k must be between 1 and the {clients} clients of the pool, got {size}")
    return tuple(sizes)


def _between(low: int, high: int, k: object) -> list[int]:
    if low > high:
        raise FedwiseError(f"k must be a range from small to large, got '{k}'; swap its ends")
    # Ends are checked against the pool before the range is spelled out.
    return [low, high] if high - low > 100_000 else list(range(low, high + 1))
