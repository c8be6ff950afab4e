"""Proportional fitting: give a table other marginals and keep its odds ratios.

Odds ratios are the part of a table that clients have in common: they differ far more in their marginals
(measured well, since every table of a variable repeats them) than in how two variables depend on each
other. A client whose own table is too noisy gets the pool's odds ratios.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..machine_code import compiled

Floats = npt.NDArray[np.float64]

#: Most rounds of proportional fitting; tables with empty cells need many, others stop early.
ROUNDS = 60
#: A column sum within this part of the whole is right: a hundredth of a record in a million.
_EXACT = 1e-8


def fit(tables: Floats, rows: Floats, columns: Floats, *, rounds: int = ROUNDS) -> Floats:
    """Scale rows and columns of each table in turn until the marginals are the wanted ones.

    Parameters
    ----------
    tables
        Shape (…, a, b), or one that can be broadcast to it: (a, b) for one table that all start from. Not negative.
    rows, columns
        Shapes (…, a) and (…, b): wanted marginals, not negative, equal sums.
    rounds
        Most times each side is scaled; fewer once columns are right. Rows are scaled last.

    Returns
    -------
    fitted
        Shape (…, a, b). A row or column that is empty in the table stays empty.
    """
    shape = (*rows.shape, columns.shape[-1])
    fitted = np.array(np.broadcast_to(tables, shape), dtype=np.float64, order="C")
    return fit_in_place(fitted, np.ascontiguousarray(rows), np.ascontiguousarray(columns), rounds=rounds)


def fit_in_place(tables: Floats, rows: Floats, columns: Floats, *, rounds: int = ROUNDS) -> Floats:
    """`fit` of contiguous tables (…, a, b), which are overwritten; rows and columns contiguous too."""
    a, b = tables.shape[-2:]
    _fit(tables.reshape(-1, a, b), rows.reshape(-1, a), columns.reshape(-1, b), rounds, np.empty(b))
    return tables


@compiled()
def _fit(tables: Floats, rows: Floats, columns: Floats, rounds: int, below: Floats) -> None:
    # Work space `below` comes from the caller, and there is no call of max: each would take a part of the compilation.
    a, b = tables.shape[1], tables.shape[2]
    for i in range(tables.shape[0]):
        table = tables[i]
        for step in range(rounds + 1):
            for y in range(b):
                below[y] = 0.0
            for x in range(a):
                present = 0.0
                for y in range(b):
                    present += table[x, y]
                factor = rows[i, x] / present if present > 0.0 else 0.0
                for y in range(b):
                    table[x, y] *= factor
                    below[y] += table[x, y]
            if step == rounds:
                break
            worst = 0.0
            for y in range(b):
                wanted = columns[i, y]
                off = abs(wanted - below[y])
                if off > worst:
                    worst = off
                below[y] = wanted / below[y] if below[y] > 0.0 else 0.0
            if worst <= _EXACT:
                break
            for x in range(a):
                for y in range(b):
                    table[x, y] *= below[y]


def margin_factors(table: Floats, carried: Floats) -> tuple[Floats, Floats]:
    """Row and column terms (α, β) with the same row and column sums as `carried`: p·(α_x + β_y).

    Solves [[diag p_x, P], [Pᵀ, diag p_y]] · (α, β) = (row sums, column sums) of `carried`. The one
    free constant (α + t, β − t) and empty levels are pinned by a trace of the identity.
    Tables (…, a, b) give terms (…, a) and (…, b).
    """
    a = table.shape[-2]
    both = np.linalg.solve(margin_system(table), _both_sums(carried)[..., None])[..., 0]
    return np.asarray(both[..., :a]), np.asarray(both[..., a:])


def margin_system(table: Floats) -> Floats:
    """The matrix of `margin_factors` for tables (…, a, b). Shape (…, a + b, a + b)."""
    a, b = table.shape[-2:]
    system = np.zeros((*table.shape[:-2], a + b, a + b))
    system[..., :a, a:], system[..., a:, :a] = table, np.swapaxes(table, -1, -2)
    diagonal = np.arange(a + b)
    system[..., diagonal, diagonal] = _both_sums(table) + 1e-9
    return system


def _both_sums(tables: Floats) -> Floats:
    """Row sums, then column sums, of tables (…, a, b)."""
    return np.concatenate([tables.sum(axis=-1), tables.sum(axis=-2)], axis=-1)


def centre(tables: Floats) -> Floats:
    """The interaction part of tables (…, a, b): row means, column means and mean removed."""
    rows, columns = tables.mean(axis=-1, keepdims=True), tables.mean(axis=-2, keepdims=True)
    return np.asarray(tables - rows - (columns - rows.mean(axis=-2, keepdims=True)), dtype=np.float64)
