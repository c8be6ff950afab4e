"""Quantisation: weighted numbers as integers whose sum over the clients is exact modulo a power of two."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import FedwiseError
from .masks import Words

#: More clients would overflow the sum: 1023 · 2²² < 2³².
MOST_CLIENTS = 1000
#: Numbers before the values: the weight, and whether weight or values were beyond their bounds.
_HEAD = 3


class Total(NamedTuple):
    """What the sum over the clients says."""

    mean: npt.NDArray[np.float64]
    heavy: int
    clipped: int


@dataclass(frozen=True)
class Quantiser:
    """Integers of `bits` bits in words of `word` bits.

    A client with weight w and values v sends ``q = round(2^bits · w/max_weight)`` and
    ``round(2^(bits−1) · v/bound · q/2^bits)``; rounding is to the nearest, so each client is off by at most half
    a step. A weight or a value beyond its bound is cut to it *and counted*. The count is part of the masked
    sum: a refusal by name would tell the server one exact bit about one client for every bound it tries.

    Parameters
    ----------
    bound, max_weight
        Largest absolute value, and largest weight, of any client.
    word, bits
        Size of a word, and of a quantised weight in it.
    """

    bound: float
    max_weight: float
    word: int
    bits: int

    @property
    def dtype(self) -> npt.DTypeLike:
        """Type of the words."""
        return np.uint32 if self.word == 32 else np.uint64

    def encode(self, values: npt.NDArray[np.float64], weight: float) -> Words:
        """One client's words.

        Raises
        ------
        FedwiseError
            The weight is not a positive number.
        """
        if not (math.isfinite(weight) and weight > 0):
            raise FedwiseError("num-examples must be a number above 0 under secure aggregation")
        share = min(weight / self.max_weight, 1.0)
        # At least one step: a client that takes part counts.
        scaled = max(round(share * 2**self.bits), 1)
        with np.errstate(over="ignore", invalid="ignore"):
            relative = np.nan_to_num(values / self.bound * (scaled / 2**self.bits), nan=2.0)
        clipped = bool((np.abs(relative) > 1).any())
        quantised = np.rint(np.clip(relative, -1, 1) * 2 ** (self.bits - 1)).astype(np.int64)
        head = [scaled, int(weight > self.max_weight), int(clipped)]
        # Negative numbers wrap around to the upper half of the words.
        return np.concatenate([np.array(head, dtype=np.int64), quantised]).astype(self.dtype)

    def decode(self, total: Words) -> Total:
        """The weighted mean, from the sum of all clients' words."""
        signed = total[_HEAD:].view(np.int32 if self.word == 32 else np.int64)
        weight = int(total[0]) / 2**self.bits
        mean = signed.astype(np.float64) * (self.bound / 2 ** (self.bits - 1) / weight)
        return Total(mean, heavy=int(total[1]), clipped=int(total[2]))

    def size(self, values: int) -> int:
        """Words for so many values."""
        return values + _HEAD


def of_updates(clipping_range: float, max_weight: float) -> Quantiser:
    """For parameters: 4 bytes each."""
    return Quantiser(clipping_range, max_weight, word=32, bits=22)


def of_metrics(max_weight: float) -> Quantiser:
    """For a few metrics of unknown size: 8 bytes each, up to a million, in steps of 2·10⁻⁹."""
    return Quantiser(1e6, max_weight, word=64, bits=50)
