"""One annealing chain: propose a swap, evaluate it, accept it or not."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .compiled import strict
from .constraints import Limits, allowed, exchange
from .kernels import move, resum, swap_loss
from .scoring import Scorer

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


def seed_words(seed: int, chain: int) -> Words:
    """The generator's state for a chain: SplitMix64 started from a hash of (seed, chain)."""
    mix = _mix.py_func  # type: ignore[attr-defined]  # arrays of one number: they wrap around without a warning
    first, second = np.array([[seed], [chain]], dtype=np.uint64)
    state: Words = mix(mix(first + _GOLDEN) ^ ((second + np.uint64(1)) * _GOLDEN))
    return state


@strict
def uniform(state: Words) -> float:
    """The next number in [0, 1)."""
    state[0] += _GOLDEN
    return float(_mix(state[0]) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


class Walk(NamedTuple):
    """The state of one chain; a loop changes its arrays in place.

    Parameters
    ----------
    order
        The free clients: the first `slots` are members, the others are not.
    base
        Summed row of the clients that are fixed.
    sums
        `base` plus the members.
    used, counts
        What the members use of the limits.
    best
        Shape (slots,): the free members of the best federation so far.
    floats, integers
        See `CURRENT` and `STEP`.
    words
        State of the random generator.
    cooling, level
        The temperature is multiplied by `cooling` after every `level` proposals.
    """

    order: Ints
    slots: int
    base: Floats
    sums: Floats
    used: Floats
    counts: Ints
    best: Ints
    floats: Floats
    integers: Ints
    words: Words
    cooling: float
    level: int


@strict
def anneal(scorer: Scorer, scratch: Floats, rows: Floats, limits: Limits, walk: Walk, steps: int) -> None:
    """Advance a chain by `steps` proposals, in place."""
    # Taken out once: an array taken from the tuple inside the loop has its references counted at every proposal.
    order, slots, base, sums = walk.order, walk.slots, walk.base, walk.sums
    used, counts, best = walk.used, walk.counts, walk.best
    floats, integers, words, cooling, level = walk.floats, walk.integers, walk.words, walk.cooling, walk.level
    others = order.size - slots
    for _ in range(steps):
        a = int(uniform(words) * slots)
        b = slots + int(uniform(words) * others)
        out, into = order[a], order[b]
        if allowed(limits, used, counts, out, into):
            loss, current = swap_loss(scorer, scratch, sums, rows[out], rows[into]), floats[CURRENT]
            integers[EVALUATIONS] += 1
            if loss <= current or uniform(words) < math.exp((current - loss) / floats[TEMPERATURE]):
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
                    for i in range(slots):  # an assignment of slices takes seconds to compile
                        best[i] = order[i]
        integers[STEP] += 1
        if integers[STEP] % level == 0:
            floats[TEMPERATURE] *= cooling
