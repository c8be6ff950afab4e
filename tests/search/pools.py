"""Small random pools for the search tests."""

from __future__ import annotations

import itertools

import numpy as np

from fedwise.estimation.estimates import Estimates
from fedwise.schema.layout import Layout
from fedwise.schema.schema import Column, Role, Schema


def random_estimates(
    clients: int = 10,
    *,
    seed: int = 0,
    features: tuple[int, ...] = (3, 4),
    sensitive: tuple[int, ...] = (2,),
    target: int = 2,
    rows: int = 300,
    plain: bool = False,
    sigma: float = 0.0,
) -> Estimates:
    """Counted tables of random people, each client with its own dependence; with noise where asked."""
    rng = np.random.default_rng(seed)
    columns = [Column(f"N{i}", Role.FEATURE, levels=tuple(range(s))) for i, s in enumerate(features)]
    columns += [Column(f"S{i}", Role.SENSITIVE, levels=tuple(range(s))) for i, s in enumerate(sensitive)]
    columns.append(Column("T", Role.TARGET, levels=tuple(range(target))))
    schema = Schema(tuple(columns))
    layout = Layout.of(schema, tuple(itertools.combinations(schema.names, 2)))
    cells = np.zeros((clients, layout.cells))
    marginals = np.zeros((clients, sum(layout.sizes)))
    totals = np.zeros(clients)
    for c in range(clients):
        n = int(rng.integers(rows // 3, rows))
        hidden = rng.normal(size=n)
        pull = rng.normal(size=len(layout.sizes))
        codes = np.stack(
            [
                np.clip(
                    np.digitize(pull[v] * hidden + rng.normal(size=n), np.linspace(-1, 1, size - 1)),
                    0,
                    size - 1,
                )
                for v, size in enumerate(layout.sizes)
            ]
        )
        for j, (x, y) in enumerate(layout.pairs):
            flat = codes[x] * layout.sizes[y] + codes[y]
            cells[c, layout.slice(j)] = np.bincount(flat, minlength=layout.sizes[x] * layout.sizes[y])
        marginals[c] = np.concatenate(
            [np.bincount(codes[v], minlength=s) for v, s in enumerate(layout.sizes)]
        )
        totals[c] = n
    cells += rng.normal(0, sigma, cells.shape) if sigma else 0.0
    names = tuple(f"c{i:02d}" for i in range(clients))
    return Estimates(
        names,
        schema,
        layout,
        cells,
        totals,
        marginals,
        "plain" if plain else "shrinkage",
        np.full(layout.tables, sigma),
    )
