"""Labels: what the model is to tell: one of two classes, one of several, or a number in public bins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..errors import FedwiseError
from ..schema.schema import Column, Schema

Floats = npt.NDArray[np.float64]
Kind = Literal["binary", "classes", "number"]


@dataclass(frozen=True, eq=False)
class Labels:
    """The target's levels as numbers that a linear function of the inputs can be fitted to.

    Parameters
    ----------
    kind
        What is trained: two classes, several by softmax, or a number.
    names
        The levels in code order.
    values
        Shape (levels, outputs): what is summed in b = Σ z·value. Indicators of every class but the first; of a number
        the middle of its bin, scaled as in training.
    edges
        Of a number, shape (levels, 2): the ends of each bin, scaled alike.
    unit
        Of a number, its unit in scaled ones.
    """

    kind: Kind
    names: tuple[str, ...]
    values: Floats
    edges: Floats
    unit: float = 1.0

    @classmethod
    def of(cls, schema: Schema) -> Labels:
        """The labels of a schema's target.

        Raises
        ------
        FedwiseError
            The target has one level, or one for all values that are not declared.
        """
        column = schema.columns[schema.target]
        if column.size < 2 or column.has_other:
            raise FedwiseError(
                f"target '{column.name}' must have at least two levels, all of them declared, to be forecast; "
                "declare every level in the schema"
            )
        if column.size > 2 and column.model in ("scaled", "binned"):
            centre, unit = scale_of(column)
            edges = (edges_of(column) - centre) / unit
            return cls("number", column.labels, edges.mean(axis=1, keepdims=True), edges, unit)
        values = np.eye(column.size)[:, 1:]
        kind: Kind = "binary" if column.size == 2 else "classes"
        return cls(kind, column.labels, values, np.zeros((column.size, 2)))

    @property
    def outputs(self) -> int:
        """Scores of a record: one, or one for every class but the first."""
        return int(self.values.shape[1])


def edges_of(column: Column) -> Floats:
    """Ends of every bin, shape (levels, 2); of a level both are the level itself."""
    if column.bins is not None:
        edges = np.asarray(column.bins, dtype=np.float64)
        return np.stack([edges[:-1], edges[1:]], axis=1)
    assert column.levels is not None
    return np.repeat(np.asarray(column.levels, dtype=np.float64)[:, None], 2, axis=1)


def scale_of(column: Column) -> tuple[float, float]:
    """Centre and width of a scaled column: as declared, or middle and half width of its bins."""
    if column.scale is not None:
        return column.scale
    assert column.bins is not None  # the schema checks it
    low, high = column.bins[0], column.bins[-1]
    return (low + high) / 2, (high - low) / 2
