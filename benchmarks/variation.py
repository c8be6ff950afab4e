"""Benchmark of variation: how far do features go together in clients' rows, and in estimates of their tables?

    python benchmarks/variation.py [--pools travel2024 ...] [--draws 1 2]

An estimate that is drawn towards the pool leaves out part of what a client deviates by, so in it features depend less
on one another than in the rows; doubles are drawn from tables that are lengthened (`fedwise.estimation.variation`).
Printed and kept, for the tables of features among themselves: their mutual information in nats, summed over tables,
mean over clients and of all clients together, in the rows, as estimated at ε = 1 from joint tables, and lengthened; and
the squared error of shares of cells, lengthened beside estimated.

Writes docs/results/variation.csv. Needs the census records in ../shared/data.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from pathlib import Path

import hidden
import numpy as np
import polars as pl
from rehearsal_pools import Real

from fedwise.estimation import estimate
from fedwise.estimation.estimates import Estimates
from fedwise.estimation.variation import among_features, varied

POOLS = ("travel2024", "income2018", "coverage2024", "degree", "poverty_ny")
OUT = Path(__file__).parents[1] / "docs" / "results" / "variation.csv"


def shares(estimates: Estimates, *, together: bool = False) -> Iterator[np.ndarray]:
    """Tables of features among themselves as shares, of each client or all together: (clients, levels, levels)."""
    for j in among_features(estimates):
        counts = estimates.cells[:, estimates.layout.slice(j)].reshape(-1, *estimates.layout.shapes[j])
        counts = counts.sum(axis=0, keepdims=True) if together else counts
        yield counts / counts.sum(axis=(1, 2), keepdims=True)


def information(estimates: Estimates, *, together: bool = False) -> float:
    """Mutual information of features, summed over tables: mean over clients, or of all of them together."""
    found = 0.0
    for table in shares(estimates, together=together):
        cells = np.maximum(table, 1e-15)
        apart = cells.sum(axis=1, keepdims=True) * cells.sum(axis=2, keepdims=True)
        found += float((cells * np.log(cells / apart)).sum(axis=(1, 2)).mean())
    return found


def error(estimates: Estimates, exact: Estimates) -> float:
    """Sum of squared errors of shares of cells."""
    pairs = zip(shares(estimates), shares(exact), strict=True)
    return sum(float(((one - other) ** 2).sum()) for one, other in pairs)


def line(real: Real, draw: int) -> dict[str, object]:
    """One draw of the noise of one pool."""
    exact, made = (estimate(real.pool(epsilon, draw, joint=True)) for epsilon in (math.inf, 1.0))
    long = varied(made)
    return {
        "pool": real.name, "draw": draw,
        "rows": information(exact), "estimated": information(made), "lengthened": information(long),
        "rows_together": information(exact, together=True), "estimated_together": information(made, together=True),
        "lengthened_together": information(long, together=True), "error_ratio": error(long, exact) / error(made, exact),
    }  # fmt: skip


def main() -> None:
    """Estimate, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--pools", nargs="+", default=list(POOLS))
    parser.add_argument("--draws", nargs="+", type=int, default=[1, 2])
    args = parser.parse_args()
    table = pl.DataFrame([line(real, draw) for real in map(hidden.read, args.pools) for draw in args.draws])
    table.write_csv(OUT, float_precision=4)
    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=160, float_precision=3):
        print(table)


if __name__ == "__main__":
    main()
