"""Two sensitive attributes: a schema of one's own, frames from anywhere, and a report that shows both."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import polars as pl

import fedwise as fw

SCHEMA = """
name = "stays"

[columns.AGE]
role = "feature"
bins = [0, 18, 40, 65, 120]

[columns.SEX]
role = "sensitive"
levels = ["female", "male"]

[columns.REGION]
role = "sensitive"
levels = ["north", "south", "islands"]

[columns.LONG_STAY]
role = "target"
rule = "DAYS > 7"
"""


def patients(rows: int, seed: int) -> pl.DataFrame:
    """Artificial patients of one hospital."""
    rng = np.random.default_rng(seed)
    age, region = rng.integers(0, 95, rows), rng.integers(0, 3, rows)
    days = rng.poisson(3 + age / 20 + (region == 2) * (seed % 3), rows)
    sex = np.array(["female", "male"])[rng.integers(0, 2, rows)]
    return pl.DataFrame(
        {"AGE": age, "SEX": sex, "REGION": np.array(["north", "south", "islands"])[region], "DAYS": days}
    )


def main() -> None:
    """Six hospitals release, three are chosen, and the report shows both attributes."""
    plan = fw.plan(fw.Schema.parse(SCHEMA), epsilon=2.0)
    with tempfile.TemporaryDirectory() as folder:
        releases = [
            fw.release(
                plan,
                patients(800 + 50 * i, i),
                client=f"hospital {i}",
                ledger=fw.Ledger(Path(folder) / f"{i}.db", 2.0, 1e-5),
            )
            for i in range(6)
        ]
        pool = fw.Pool.of(releases)
        selection = fw.select(pool, k=3, seed=0)
        page = Path(folder) / "report.html"
        report = fw.report(selection, page, releases=pool, frontier=False, forecast=False)
        print(selection)
        for attribute in report.values.attributes:
            shares = ", ".join(f"{row.group} {row.positives or 0:.1%}" for row in attribute.rows)
            print(f"long stays by {attribute.name}: {shares}")


if __name__ == "__main__":
    main()
