"""Balance: an objective for releases that tell the label alone: classes in equal parts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..schema.schema import Schema
from .information import entropy
from .pfl import Counts

Floats = npt.NDArray[np.float64]


class Balance:
    """log2(classes) − H(T), summed over targets, in bits: 0 where every class has as many records as any other.

    The loss of a plan that asks for the label alone (`label_only`): no other column, no term of the PFL.
    """

    name = "balance"

    def __init__(self) -> None:
        self._sizes: tuple[int, ...] = ()

    def rows(self, estimates: Counts) -> Floats:
        """The estimated counts of each target's levels."""
        layout, targets = estimates.layout, estimates.schema.targets
        self._sizes = tuple(layout.sizes[t] for t in targets)
        rows = [estimates.marginals[:, layout.marginal(t)] for t in targets]
        return np.ascontiguousarray(np.concatenate(rows, axis=1))

    def evaluate(self, sums: Floats) -> Floats:
        """How far each summed row is from equal parts."""
        found, first = np.zeros(len(sums)), 0
        for size in self._sizes:
            found += entropy(np.ones(size)) - entropy(sums[:, first : first + size])
            first += size
        return found


def label_only(schema: Schema) -> bool:
    """Whether no column beside the targets tells anything: all have one level."""
    return all(schema.sizes[i] == 1 for i in (*schema.features, *schema.sensitive))
