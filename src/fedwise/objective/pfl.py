"""The Potential Federation Loss: slow, obvious, the reference every kernel is tested against.

    PFL(W) = alpha · Σ_S I(S;T) + beta · Σ_S Σ_j I(S;N_j) + gamma · Σ_{i<j} I(N_i;N_j) − lam · Σ_j I(N_j;T)

over the summed tables of the federation W, in bits. Each unordered pair counts once; with several
sensitive attributes S the first two terms sum over each.

The marginals of a pair are either the federation's own estimates, one for each variable, or, with `clip`,
those of the summed table itself after its negative cells were set to zero: the paper's plug-in loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from ..schema.layout import Layout
from ..schema.schema import Schema
from .information import from_sums, information, informations, xlogx
from .weights import TERM_NAMES, Weights, pair_weights, term_of

__all__ = [
    "TERM_NAMES",
    "Counts",
    "Terms",
    "Weights",
    "client_terms",
    "clips",
    "federation_terms",
    "information",
    "loss",
    "pair_weights",
    "term_of",
    "terms",
]

Floats = npt.NDArray[np.float64]

#: Cells handled at once; keeps the temporary arrays of thousands of clients small.
_BLOCK = 4_000_000


class Counts(Protocol):
    """What the loss reads of a pool: estimated counts, a row for each client. `Estimates` is one."""

    @property
    def clients(self) -> tuple[str, ...]:
        """Names, in row order."""

    @property
    def schema(self) -> Schema:
        """The public columns."""

    @property
    def layout(self) -> Layout:
        """Where each cell and each marginal lives."""

    @property
    def cells(self) -> Floats:
        """Shape (clients, cells)."""

    @property
    def marginals(self) -> Floats:
        """Shape (clients, sum of sizes)."""

    @property
    def totals(self) -> Floats:
        """Shape (clients,)."""

    @property
    def estimator(self) -> str:
        """Name of the estimator that made them."""


class Terms(msgspec.Struct, frozen=True):
    """The four terms of the loss in bits, before weighting."""

    direct_bias: float
    proxy_bias: float
    redundancy: float
    signal: float

    @classmethod
    def of(cls, row: Floats) -> Terms:
        """Terms from their values in the order of `TERM_NAMES`."""
        return cls(*(float(value) for value in row))

    def weighted(self, weights: Weights) -> dict[str, float]:
        """Each term times its signed weight; they sum to the loss."""
        return {name: by * getattr(self, name) for name, by in zip(TERM_NAMES, weights.signed, strict=True)}

    def loss(self, weights: Weights) -> float:
        """Weighted sum: the PFL."""
        return sum(self.weighted(weights).values())

    def unfairness(self, weights: Weights) -> float:
        """The part of the loss that bias adds: alpha·direct + beta·proxy bias."""
        parts = self.weighted(weights)
        return parts["direct_bias"] + parts["proxy_bias"]

    def utility(self, weights: Weights) -> float:
        """What is taken off it for useful data: lam·signal − gamma·redundancy."""
        parts = self.weighted(weights)
        return -(parts["signal"] + parts["redundancy"])


def clips(estimates: Counts, asked: bool | None = None) -> bool:
    """Whether the loss clips summed tables and takes their own marginals: as asked, or as the paper does.

    Plain estimates are unbiased counts whose noise was never made consistent, so no marginal fits all
    tables of a variable: they are clipped unless the caller says otherwise.
    """
    return estimates.estimator == "plain" if asked is None else asked


def terms(
    estimates: Counts, federation: Sequence[int] | npt.NDArray[np.int64], *, clip: bool | None = None
) -> Terms:
    """The four terms of the federation given by client positions."""
    members = np.asarray(federation, dtype=np.int64)
    return Terms.of(federation_terms(estimates, members[None, :], clip=clip)[0])


def loss(
    estimates: Counts,
    federation: Sequence[int] | npt.NDArray[np.int64],
    weights: Weights,
    *,
    clip: bool | None = None,
) -> float:
    """The PFL of a federation, from its terms."""
    return terms(estimates, federation, clip=clip).loss(weights)


def client_terms(estimates: Counts, *, clip: bool | None = None) -> Floats:
    """The four terms of each client on its own, in bits. Shape (clients, 4), columns as `TERM_NAMES`."""
    return _blocks(estimates, None, clips(estimates, clip))


def federation_terms(
    estimates: Counts, members: npt.NDArray[np.int64], *, clip: bool | None = None
) -> Floats:
    """The four terms of each federation. `members` has shape (federations, k); returns (federations, 4)."""
    return _blocks(estimates, members, clips(estimates, clip))


def _blocks(estimates: Counts, members: npt.NDArray[np.int64] | None, clip: bool) -> Floats:
    count = len(estimates.clients) if members is None else len(members)
    step = max(1, _BLOCK // max(1, estimates.layout.cells))
    parts = [_batch(estimates, members, slice(at, at + step), clip) for at in range(0, count, step)]
    return np.concatenate(parts) if parts else np.zeros((0, len(TERM_NAMES)))


def _batch(estimates: Counts, members: npt.NDArray[np.int64] | None, block: slice, clip: bool) -> Floats:
    def pick(rows: Floats) -> Floats:
        picked: Floats = rows[block] if members is None else rows[members[block]].sum(axis=1)
        return picked

    layout = estimates.layout
    cells = pick(estimates.cells)
    out = np.zeros((len(cells), len(TERM_NAMES)))
    if not clip:
        totals = pick(estimates.totals)
        sides = np.add.reduceat(xlogx(pick(estimates.marginals)), layout.marginal_offsets[:-1], axis=1)
    for j, (x, y) in enumerate(layout.pairs):
        term = term_of(estimates.schema, x, y)
        if term is None:
            continue
        if clip:
            found = informations(cells[:, layout.slice(j)].reshape(-1, *layout.shapes[j]))
        else:
            joint = xlogx(cells[:, layout.slice(j)]).sum(axis=1)
            found = from_sums(joint, sides[:, x] + sides[:, y], totals)
        out[:, TERM_NAMES.index(term)] += found
    return out
