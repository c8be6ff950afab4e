"""One annealing chain, compiled: propose a swap, evaluate it, accept or not."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from .compiled import strict
from .constraints import Limits, allowed, exchange
from .kernels import Spec, move, resum, swap_loss

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

#: Accepted swaps between two fresh sums.
RESUM = 8192

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)

#: Places in a chain's float state.
CURRENT, BEST, TEMPERATURE = 0, 1, 2
#: Places in a chain's integer state.
STEP, EVALUATIONS, ACCEPTED = 0, 1, 2


@strict
def _mix(z: np.uint64) -> np.uint64:
    z = (z ^ (z >> np.uint64(30))) * _MIX1
    z = (z ^ (z >> np.uint64(27))) * _MIX2
    return z ^ (z >> np.uint64(31))


@strict
def seed_words(seed: np.uint64, chain: np.uint64) -> Words:
    """The generator's state for a chain: SplitMix64 started from a hash of (seed, chain)."""
    state = np.empty(1, dtype=np.uint64)
    state[0] = _mix(_mix(seed + _GOLDEN) ^ ((chain + np.uint64(1)) * _GOLDEN))
    return state


@strict
def uniform(state: Words) -> float:
    """The next number in [0, 1)."""
    state[0] += _GOLDEN
    return float(_mix(state[0]) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@strict
def anneal(
    spec: Spec,
    rows: Floats,
    limits: Limits,
    base: Floats,
    order: Ints,
    slots: int,
    sums: Floats,
    used: Floats,
    counts: Ints,
    best_order: Ints,
    floats: Floats,
    integers: Ints,
    state: Words,
    cooling: float,
    level: int,
    steps: int,
) -> None:
    """Advance a chain by `steps` proposals, in place.

    Parameters
    ----------
    base
        Summed row of the clients that are fixed; `sums` is `base` plus the members.
    order
        The free clients: the first `slots` are members, the others are not.
    used, counts
        What the members use of the limits.
    best_order
        Shape (slots,): the free members of the best federation so far.
    floats, integers
        The chain's state, see `CURRENT` and `STEP`.
    cooling, level
        The temperature is multiplied by `cooling` after every `level` proposals.
    """
    scratch = np.zeros((2, spec.scratch))
    others = order.size - slots
    for _ in range(steps):
        a = int(uniform(state) * slots)
        b = slots + int(uniform(state) * others)
        out, into = order[a], order[b]
        if allowed(limits, used, counts, out, into):
            loss = swap_loss(spec, scratch, sums, rows[out], rows[into])
            integers[EVALUATIONS] += 1
            rise = loss - floats[CURRENT]
            if rise <= 0.0 or uniform(state) < math.exp(-rise / floats[TEMPERATURE]):
                order[a], order[b] = into, out
                exchange(limits, used, counts, out, into)
                floats[CURRENT] = loss
                integers[ACCEPTED] += 1
                if integers[ACCEPTED] % RESUM == 0:
                    resum(rows, base, order[:slots], sums)
                else:
                    move(sums, rows[out], rows[into])
                if loss < floats[BEST]:
                    floats[BEST] = loss
                    best_order[:] = order[:slots]
        integers[STEP] += 1
        if integers[STEP] % level == 0:
            floats[TEMPERATURE] *= cooling
