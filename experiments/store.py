"""Store: results of experiments by content, so that a killed run continues where it was."""

from __future__ import annotations

import datetime
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from fedwise.files import write_new

#: Where tables, figures and the page go, seen from the root of the repository.
RESULTS = Path(__file__).parents[1] / "docs" / "results"
CACHE = Path(__file__).parents[1] / "build" / "experiments"


class Store:
    """A directory of JSON answers, each named by a hash of its question."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def get(self, question: dict[str, Any], answer: Callable[[], Any]) -> Any:
        """The stored answer, or a new one, stored whole before it is returned."""
        key = hashlib.sha256(msgspec.json.encode(question, order="sorted")).hexdigest()[:40]
        path = self.folder / f"{key}.json"
        try:
            return msgspec.json.decode(path.read_bytes())["answer"]
        except (OSError, msgspec.DecodeError, KeyError):
            pass
        found = answer()
        write_new(path, msgspec.json.encode({"question": question, "answer": found}), force=True)
        return msgspec.json.decode(msgspec.json.encode(found))


def write_table(table: pl.DataFrame, path: Path) -> None:
    """A small CSV with short numbers, replaced whole."""
    short = table.with_columns(pl.col(pl.Float64, pl.Float32).cast(pl.Float64).round_sig_figs(6))
    write_new(path, short.write_csv().encode(), force=True)


def read_table(path: Path) -> pl.DataFrame | None:
    """A table written before; ``None`` where there is none."""
    if not path.is_file():
        return None
    return pl.read_csv(path, infer_schema_length=None)


def machine() -> dict[str, Any]:
    """Kind of machine and date, nothing that names it."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cores": cores,
        "memory_gib": round(memory),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
