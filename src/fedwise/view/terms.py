"""Terms of many federations at once: the batched form of `objective.terms`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..estimation.estimates import Estimates
from ..objective.pfl import TERM_NAMES, Terms, Weights, term_of

Floats = npt.NDArray[np.float64]

#: Cells handled at once; keeps the temporary arrays of thousands of clients small.
_BLOCK = 4_000_000


def client_terms(estimates: Estimates) -> Floats:
    """The four terms of each client on its own, in bits. Shape (clients, 4), columns as `TERM_NAMES`."""
    return _blocks(estimates, None)


def federation_terms(estimates: Estimates, members: npt.NDArray[np.int64]) -> Floats:
    """The four terms of each federation. `members` has shape (federations, k); returns (federations, 4)."""
    return _blocks(estimates, members)


def as_terms(row: Floats) -> Terms:
    """One row as a `Terms`."""
    return Terms(**{name: float(value) for name, value in zip(TERM_NAMES, row, strict=True)})


def signs(weights: Weights) -> Floats:
    """Signed weight of each term, so that ``terms @ signs`` is the loss."""
    return np.array([weights.alpha, weights.beta, weights.gamma, -weights.lam])


def _blocks(estimates: Estimates, members: npt.NDArray[np.int64] | None) -> Floats:
    count = len(estimates.clients) if members is None else len(members)
    step = max(1, _BLOCK // max(1, estimates.cells.shape[1]))
    parts = [_batch(estimates, members, slice(at, at + step)) for at in range(0, count, step)]
    return np.concatenate(parts) if parts else np.zeros((0, len(TERM_NAMES)))


def _batch(estimates: Estimates, members: npt.NDArray[np.int64] | None, block: slice) -> Floats:
    def pick(rows: Floats) -> Floats:
        picked: Floats = rows[block] if members is None else rows[members[block]].sum(axis=1)
        return picked

    layout = estimates.layout
    cells = pick(estimates.cells)
    out = np.zeros((len(cells), len(TERM_NAMES)))
    marginals = None if estimates.marginals is None else _xlogx(pick(estimates.marginals))
    if marginals is not None:
        marginals = np.add.reduceat(marginals, estimates.marginal_offsets[:-1], axis=1)
    totals = pick(estimates.totals)
    for j, (x, y) in enumerate(layout.pairs):
        term = term_of(estimates.schema, x, y)
        if term is None:
            continue
        table = np.maximum(cells[:, layout.slice(j)], 0.0)
        if marginals is None:
            shaped = table.reshape(len(table), *layout.shapes[j])
            n = table.sum(axis=1)
            sides = _xlogx(shaped.sum(axis=2)).sum(axis=1) + _xlogx(shaped.sum(axis=1)).sum(axis=1)
        else:
            n, sides = totals, marginals[:, x] + marginals[:, y]
        safe = np.where(n > 0, n, 1.0)
        found = np.log2(safe) + (_xlogx(table).sum(axis=1) - sides) / safe
        out[:, TERM_NAMES.index(term)] += np.where(n > 0, found, 0.0)
    return out


def _xlogx(counts: Floats) -> Floats:
    """c·log2 c, and 0 for empty or negative cells."""
    positive = np.maximum(counts, 0.0)
    found: Floats = positive * np.log2(positive, out=np.zeros_like(positive), where=positive > 0)
    return found
