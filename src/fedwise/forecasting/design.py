"""Design: how the forecast's model sees a record. Indicators of levels, and the inputs made of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..errors import FedwiseError, nearest
from ..schema.layout import Layout
from ..schema.schema import Column, Schema
from .labels import Labels, edges_of, scale_of

Floats = npt.NDArray[np.float64]
Coding = Literal["one-hot", "schema"]

#: A level whose estimated share of the pool is below this many standard errors is left out.
_VISIBLE = 3.0


@dataclass(frozen=True, eq=False)
class Design:
    """Which variables the model sees and how.

    A record is first a vector z of indicators: 1, then one for each level of each variable. The
    model's inputs are x = zᵀ·projection: linear in the indicators, so every second moment of the
    inputs is linear in the pair tables.

    Parameters
    ----------
    schema
        The public columns.
    variables
        Positions of the variables the model sees, in order.
    projection
        Shape (1 + Σ levels of `variables`, inputs). The first input is the intercept.
    attribute
        Position of the sensitive attribute whose groups are compared, or ``None``.
    labels
        What the model is to tell.
    """

    schema: Schema
    variables: tuple[int, ...]
    projection: Floats
    attribute: int | None
    labels: Labels

    @classmethod
    def of(
        cls,
        schema: Schema,
        marginals: Floats,
        *,
        errors: Floats | None = None,
        use_sensitive: bool = True,
        attribute: str | None = None,
        coding: Coding = "one-hot",
        with_attribute: bool = False,
    ) -> Design:
        """The design of a schema.

        Parameters
        ----------
        marginals
            Shape (Σ sizes,): the pool's counts of every level. The commonest level of a variable is
            the reference; levels that cannot be told from empty get no input.
        errors
            Standard error of each marginal; default none.
        use_sensitive
            Whether the model sees the sensitive attributes, as the trained ones do.
        attribute
            The sensitive attribute to compare groups of; default the first.
        coding
            ``one-hot`` gives each level an input; ``schema`` follows ``model = "scaled"``: one
            number, the middle of the bin. Columns with ``model = "drop"`` are never seen.
        with_attribute
            Give the model the compared attribute whatever the schema says.
        """
        if coding not in ("one-hot", "schema"):
            raise FedwiseError(f"coding must be 'one-hot' or 'schema', got '{coding}'")
        labels = Labels.of(schema)
        seen = [*schema.features, *(schema.sensitive if use_sensitive else ())]
        compared = _position(schema, attribute)
        variables = tuple(v for v in seen if schema.columns[v].model != "drop")
        if with_attribute and compared is not None and compared not in variables:
            variables += (compared,)
        if not any(v in schema.features for v in variables):
            raise FedwiseError('forecast must see at least one feature; change model = "drop" in the schema')
        levels = Layout.of(schema, ())
        errors = np.zeros_like(marginals) if errors is None else errors
        inputs: list[Floats] = []
        width = 1 + sum(schema.sizes[v] for v in variables)
        intercept = np.zeros(width)
        intercept[0] = 1.0
        first = 1
        for v in variables:
            counts, error = marginals[levels.marginal(v)], errors[levels.marginal(v)]
            for line in _lines(schema.columns[v], counts, error, coding):
                inputs.append(np.zeros(width))
                inputs[-1][first : first + len(counts)] = line
            first += schema.sizes[v]
        return cls(schema, variables, np.stack([intercept, *inputs], axis=1), compared, labels)

    @property
    def inputs(self) -> int:
        """Number of model inputs, the intercept among them."""
        return int(self.projection.shape[1])

    @property
    def width(self) -> int:
        """Number of indicators, the constant 1 among them."""
        return int(self.projection.shape[0])

    @cached_property
    def first(self) -> npt.NDArray[np.int64]:
        """First indicator of each variable the model sees."""
        sizes = [self.schema.sizes[v] for v in self.variables]
        return np.concatenate([[1], 1 + np.cumsum(sizes)[:-1]]).astype(np.int64)

    def matrix(self, codes: npt.NDArray[np.integer]) -> Floats:
        """Inputs of records: codes of shape (schema variables, rows) to (rows, inputs)."""
        out = np.tile(self.projection[0], (codes.shape[1], 1))
        for v, first in zip(self.variables, self.first, strict=True):
            out += self.projection[first + codes[v].astype(np.int64)]
        return out

    def indicators(self, codes: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """Positions of the ones of records, shape (rows, 1 + variables)."""
        ones = [np.zeros(codes.shape[1], np.int64)]
        ones += [first + codes[v] for v, first in zip(self.variables, self.first, strict=True)]
        return np.stack(ones, axis=1)


def _lines(column: Column, counts: Floats, errors: Floats, coding: Coding) -> list[Floats]:
    """The inputs of one column, each as its value at every level."""
    size = column.size
    if coding == "schema" and column.model == "scaled":
        middles = edges_of(column).mean(axis=1)
        centre, half = scale_of(column)
        known = len(middles)
        line = np.zeros(size)
        line[:known] = (middles - centre) / half
        other = [np.eye(size)[size - 1]] if column.has_other else []
        return [line, *other]
    reference = int(np.argmax(counts))
    visible = (counts > _VISIBLE * errors) & (counts > 0)
    return [np.eye(size)[level] for level in range(size) if level != reference and visible[level]]


def _position(schema: Schema, attribute: str | None) -> int | None:
    if attribute is None:
        return schema.sensitive[0] if schema.sensitive else None
    names = {schema.columns[v].name: v for v in schema.sensitive}
    if attribute not in names:
        raise FedwiseError(
            f"attribute must be a sensitive column of the schema, got '{attribute}'{nearest(attribute, names)}"
        )
    return names[attribute]
