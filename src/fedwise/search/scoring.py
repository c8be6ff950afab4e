"""Scoring: losses inside a search loop, of a compiled objective or of one written in Python.

A loop of the search is written once. Compiled, its calls to the functions here become calls to the kernels;
as plain Python they ask the objective, for a whole batch at a time where there is one. `Problem.run` chooses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from numba.extending import overload

from .kernels import ClippedSpec, clipped_loss, consistent_loss

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Scorer(Protocol):
    """What a loop scores with: a `kernels.Spec` or `kernels.ClippedSpec` when compiled, a `PythonScorer` otherwise."""

    @property
    def scratch(self) -> int:
        """Floats of work space: shape (2, scratch)."""


class PythonScorer:
    """Losses by an objective's own `evaluate`."""

    scratch = 0

    def __init__(self, evaluate: Callable[[Floats], Floats]) -> None:
        self.evaluate = evaluate


def sum_losses(scorer: Any, scratch: Floats, sums: Floats, count: int, losses: Floats) -> None:
    """Fill `losses` with the losses of the first `count` summed rows. Shapes (batch, width) and (batch,)."""
    losses[:count] = scorer.evaluate(sums[:count])


@overload(sum_losses, jit_options={"forceinline": True})
def _sum_losses(scorer: Any, scratch: Any, sums: Any, count: Any, losses: Any) -> Any:
    kernel = clipped_loss if scorer.instance_class is ClippedSpec else consistent_loss

    def compiled(scorer: Any, scratch: Any, sums: Any, count: Any, losses: Any) -> None:
        for i in range(count):
            losses[i] = kernel(scorer, scratch, sums[i])

    return compiled
