"""Weights of the loss: which term a pair of variables belongs to, and with which sign it counts."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from ..errors import FedwiseError
from ..files import parse_toml, read_bytes, shorten
from ..schema.crossing import overlap
from ..schema.layout import Layout
from ..schema.schema import Schema

Floats = npt.NDArray[np.float64]

#: The terms of the loss, in the order of the weights alpha, beta, gamma, lam.
TERM_NAMES = ("direct_bias", "proxy_bias", "redundancy", "signal")


class Weights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Weights of the four terms. The defaults are the paper's calibrated ones."""

    alpha: float = 2.0
    beta: float = 0.8889
    gamma: float = 0.1111
    lam: float = 1.3333

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise FedwiseError(f"weight {name} must be a finite number of at least 0, got {value}")
        if not any((self.alpha, self.beta, self.gamma, self.lam)):
            raise FedwiseError("weights must not all be 0; raise at least one of alpha, beta, gamma, lam")

    @property
    def signed(self) -> tuple[float, float, float, float]:
        """The weights by which the terms, in the order of `TERM_NAMES`, sum to the loss: signal lowers it."""
        return (self.alpha, self.beta, self.gamma, -self.lam)

    @classmethod
    def load(cls, path: str | Path) -> Weights:
        """Read a ``weights.toml`` as `fedwise calibrate` writes it: a [weights] table, or bare keys."""
        what = f"weights file '{path}'"
        try:
            text = read_bytes(Path(path), what="weights file", error=FedwiseError).decode("utf-8-sig")
        except UnicodeDecodeError:
            raise FedwiseError(f"{what} cannot be read as UTF-8 text; save it as UTF-8") from None
        tree = parse_toml(text, what=what, error=FedwiseError)
        try:
            return msgspec.convert(tree.get("weights", tree), cls)
        except (msgspec.ValidationError, RecursionError) as error:
            raise FedwiseError(f"{what} is not valid: {shorten(str(error))}") from None


def term_of(schema: Schema, x: int, y: int) -> str | None:
    """Which term the pair of variables at positions `x`, `y` belongs to.

    ``None`` for two sensitive ones, two targets, and a crossed column beside one of its own parts.
    """
    if overlap(schema.columns[x], schema.columns[y]):
        return None
    roles = {schema.columns[x].role.value, schema.columns[y].role.value}
    match sorted(roles):
        case ["sensitive", "target"]:
            return "direct_bias"
        case ["feature", "sensitive"]:
            return "proxy_bias"
        case ["feature"]:
            return "redundancy"
        case ["feature", "target"]:
            return "signal"
    return None


def pair_weights(schema: Schema, layout: Layout, weights: Weights) -> Floats:
    """Signed weight of each table's mutual information in the loss. Shape (tables,)."""
    signed: dict[str | None, float] = {None: 0.0, **dict(zip(TERM_NAMES, weights.signed, strict=True))}
    return np.array([signed[term_of(schema, x, y)] for x, y in layout.pairs], dtype=np.float64)


def variable_weights(layout: Layout, per_table: Floats) -> Floats:
    """Signed weight of each variable's Σ f(c_x) in the loss: −Σ of its tables' weights. Shape (variables,)."""
    found = np.zeros(len(layout.sizes))
    for (x, y), weight in zip(layout.pairs, per_table, strict=True):
        found[x] -= weight
        found[y] -= weight
    return found
