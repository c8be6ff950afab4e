"""Benchmark of numbers within bins: where doubles put them, beside where rows have them.

    python benchmarks/within.py [--pools income2018 ...]

For every column that the model reads as a number, doubles of exact tables know only how many records lie in each bin.
Printed and kept, by bin: its share, the mean of the rows and of people drawn from the pool's model, and the mean
absolute difference of the two cumulative shares within the bin, also for numbers spread evenly.

The shapes of outer bins were chosen by this benchmark on all of these pools: an exponential fall alone, a normal one
alone, a power that ends at the outer edge, and what the library does. Writes docs/results/within.csv. Needs the census
records in ../shared/data.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
from rehearsal_pools import AREAS, STATES, load, records

from fedwise.doubling.drawer import Drawer
from fedwise.estimation import estimate

POOLS = (*STATES, *AREAS)
OUT = Path(__file__).parents[1] / "docs" / "results" / "within.csv"
#: Least rows in a bin that is looked at.
LEAST = 50


def lines(name: str) -> Iterator[dict[str, object]]:
    """Every bin of every column of a pool that the model reads as a number."""
    frames, schema = records(name)
    rows = pl.concat(frames.values(), how="vertical_relaxed")
    drawer = Drawer(estimate(load(name).pool(math.inf, 0, joint=True)))
    people, _ = drawer.values.frame(drawer.model.rows, np.random.default_rng(0), drawer.scaled)
    even, _ = drawer.values.frame(drawer.model.rows, np.random.default_rng(0))
    for scaled in drawer.scaled.values():
        column = schema.columns[scaled.variable]
        real, drawn, spread = (
            f[column.sources[0]].cast(pl.Float64).drop_nulls() for f in (rows, people, even)
        )
        assert column.bins is not None
        for level, (low, high) in enumerate(zip(column.bins[:-1], column.bins[1:], strict=True)):
            inside, made, plain = (np.sort(x.filter((x >= low) & (x < high))) for x in (real, drawn, spread))
            if len(inside) >= LEAST and len(made) >= LEAST and (scaled.codes == level).sum() > 1:
                yield {
                    "pool": name, "column": column.name, "bin": f"[{low:g},{high:g})",
                    "share": len(inside) / len(real), "mean": inside.mean(), "drawn_mean": made.mean(),
                    "error": _apart(inside, made), "even_error": _apart(inside, plain),
                }  # fmt: skip


def _apart(one: np.ndarray, other: np.ndarray) -> float:
    """Mean absolute difference of two cumulative shares, over the numbers of both."""
    marks = np.unique(np.concatenate([one, other]))
    shares = [np.searchsorted(some, marks, side="right") / len(some) for some in (one, other)]
    widths = np.diff(marks, append=marks[-1] + 1.0)
    return float(np.average(np.abs(shares[0] - shares[1]), weights=widths))


def main() -> None:
    """Numbers of people beside those of rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--pools", nargs="+", choices=POOLS, default=list(POOLS))
    args = parser.parse_args()
    table = pl.DataFrame([line for name in args.pools for line in lines(name)])
    table.write_csv(OUT, float_precision=5)
    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=140):
        print(table)
        print(table.group_by("pool", "column", maintain_order=True).agg(
            (pl.col("error", "even_error") * pl.col("share")).sum() / pl.col("share").sum()
        ))  # fmt: skip


if __name__ == "__main__":
    main()
