"""The Potential Federation Loss: slow, obvious, the reference every kernel is tested against.

    PFL(W) = alpha · Σ_S I(S;T) + beta · Σ_S Σ_j I(S;N_j) + gamma · Σ_{i<j} I(N_i;N_j) − lam · Σ_j I(N_j;T)

over the summed tables of the federation W, in bits. Each unordered pair counts once; with several
sensitive attributes S the first two terms sum over each.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import numpy.typing as npt

from ..errors import FedwiseError
from ..schema.layout import Layout
from ..schema.schema import Schema

if TYPE_CHECKING:
    from ..estimation.estimates import Estimates

Floats = npt.NDArray[np.float64]


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

    @classmethod
    def load(cls, path: str | Path) -> Weights:
        """Read a ``weights.toml`` as `fedwise calibrate` writes it: a [weights] table, or bare keys."""
        try:
            tree = tomllib.loads(Path(path).read_text(encoding="utf-8"))
            return msgspec.convert(tree.get("weights", tree), cls)
        except OSError:
            raise FedwiseError(f"weights file '{path}' cannot be read; check the path") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
            raise FedwiseError(f"weights file '{path}' is not valid: {error}") from None


class Terms(msgspec.Struct, frozen=True):
    """The four terms of the loss in bits, before weighting."""

    direct_bias: float
    proxy_bias: float
    redundancy: float
    signal: float

    def loss(self, weights: Weights) -> float:
        """Weighted sum: the PFL."""
        return (
            weights.alpha * self.direct_bias
            + weights.beta * self.proxy_bias
            + weights.gamma * self.redundancy
            - weights.lam * self.signal
        )


#: Name of the term each kind of pair belongs to.
TERM_NAMES = ("direct_bias", "proxy_bias", "redundancy", "signal")


def term_of(schema: Schema, x: int, y: int) -> str | None:
    """Which term the pair of variables at positions `x`, `y` belongs to; ``None`` for two sensitive ones."""
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
    signed = {
        "direct_bias": weights.alpha,
        "proxy_bias": weights.beta,
        "redundancy": weights.gamma,
        "signal": -weights.lam,
        None: 0.0,
    }
    return np.array([signed[term_of(schema, x, y)] for x, y in layout.pairs], dtype=np.float64)


def entropy_sum(counts: Floats) -> float:
    """Σ c·log2 c over the positive counts; negative estimates count as empty cells."""
    positive = counts[counts > 0]
    return float(np.sum(positive * np.log2(positive)))


def information(
    table: Floats, x: Floats | None = None, y: Floats | None = None, n: float | None = None
) -> float:
    """Mutual information in bits of one table of counts.

    Without marginals `x`, `y` and total `n`: the plug-in estimate of the table clipped at zero. With
    them: I = log2 n + (Σ f(c_xy) − Σ f(c_x) − Σ f(c_y)) / n with f(c) = c·log2 c.
    """
    if x is None or y is None or n is None:
        table = np.maximum(table, 0.0)
        x, y, n = table.sum(axis=1), table.sum(axis=0), float(table.sum())
    if n <= 0:
        return 0.0
    return math.log2(n) + (entropy_sum(table) - entropy_sum(x) - entropy_sum(y)) / n


def terms(estimates: Estimates, federation: Sequence[int] | npt.NDArray[np.int64]) -> Terms:
    """The four terms of the federation given by client positions."""
    members = np.asarray(federation, dtype=np.int64)
    layout = estimates.layout
    cells = estimates.cells[members].sum(axis=0)
    sums = dict.fromkeys(TERM_NAMES, 0.0)
    for j, (x, y) in enumerate(layout.pairs):
        term = term_of(estimates.schema, x, y)
        if term is None:
            continue
        table = cells[layout.slice(j)].reshape(layout.shapes[j])
        if estimates.marginals is None:
            sums[term] += information(table)
        else:
            at = estimates.marginal_offsets
            marginals = estimates.marginals[members].sum(axis=0)
            total = float(estimates.totals[members].sum())
            sums[term] += information(
                table, marginals[at[x] : at[x + 1]], marginals[at[y] : at[y + 1]], total
            )
    return Terms(**sums)


def loss(estimates: Estimates, federation: Sequence[int] | npt.NDArray[np.int64], weights: Weights) -> float:
    """The PFL of a federation, from its terms."""
    return terms(estimates, federation).loss(weights)
