"""Results: the tables that the experiments have written, read back."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
from store import read_table


@dataclass
class Results:
    """All tables that are there."""

    folder: Path
    facts: dict[str, Any]
    tables: dict[str, pl.DataFrame] = field(default_factory=dict)
    curves: pl.DataFrame | None = None

    @classmethod
    def load(cls, folder: Path) -> Results:
        """Read what the experiments have written so far."""
        facts = folder / "run.json"
        found = cls(folder, msgspec.json.decode(facts.read_bytes()) if facts.is_file() else {})
        for file in sorted(folder.glob("*.csv")):
            table = read_table(file)
            if table is not None and table.height:
                found.tables[file.stem] = table
        if (folder / "evidence.parquet").is_file():
            found.tables["evidence"] = pl.read_parquet(folder / "evidence.parquet")
        if (folder / "curves.parquet").is_file():
            found.curves = pl.read_parquet(folder / "curves.parquet")
        return found

    @property
    def tasks(self) -> list[tuple[str, str]]:
        """Names and titles of the tasks that were run."""
        return [(task["name"], task["title"]) for task in self.facts.get("tasks", [])]

    @property
    def runs(self) -> pl.DataFrame | None:
        """Final metrics, a row for each training."""
        return self.tables.get("runs")

    @property
    def first(self) -> int:
        """The smallest size trained: the one most comparisons are made at."""
        return int(self.tables["federations"]["k"].min())  # type: ignore[arg-type]
