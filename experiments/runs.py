"""Runs: which federations are trained, how, and what came out, as tidy tables."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from census import Bundle

from fedwise.training.cached import Cache, Job, train_all
from fedwise.training.simulate import Config

#: Metrics that are kept, as (column, metric, attribute).
KEPT = (
    ("accuracy", "accuracy", ""),
    ("balanced_accuracy", "balanced_accuracy", ""),
    ("f1", "f1", ""),
    ("auc", "auc", ""),
    ("log_loss", "loss", ""),
    ("eod", "eod", "SEX"),
    ("spd", "spd", "SEX"),
    ("mad", "mad", "SEX"),
    ("eod_race", "eod", "WHITE"),
    ("spd_race", "spd", "WHITE"),
    ("mad_race", "mad", "WHITE"),
)
#: Names of methods that are a strategy with options. ``scaffold`` alone runs on SGD at 0.01, as in the paper's
#: code; ``scaffold-adam`` keeps the Adam of all others.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {"scaffold-adam": ("scaffold", {"optimizer": None})}


@dataclass(frozen=True)
class Entry:
    """One training and what it stands for."""

    group: str
    label: str
    k: int
    members: tuple[str, ...]
    strategy: str = "fedavg"
    sampler: str = "full"
    seed: int = 0

    def training(self, rounds: int, every: int) -> Job:
        """As a job for the trainer."""
        name, options = VARIANTS.get(self.strategy, (self.strategy, {}))
        config = Config(
            rounds=rounds, strategy=name, strategy_options=options, sampler=self.sampler, seed=self.seed,
            evaluate_every=every, replicates=0,
        )  # fmt: skip
        return Job(self.members, config)


def run(
    bundle: Bundle,
    entries: Sequence[Entry],
    *,
    rounds: int,
    every: int,
    cache: Path,
    jobs: int,
    log: str = "",
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Train all entries.

    Returns
    -------
    finals, curves
        A row for each training with its last metrics, on the rows of all clients and (``own_…``) on the
        federation's own; a row for each training and tested round.
    """
    work = [entry.training(rounds, every) for entry in entries]
    began, done = time.perf_counter(), 0

    def after(place: int, _: pl.DataFrame, cached: bool) -> None:
        nonlocal done
        done += 1
        if not cached:
            entry = entries[place]
            spent = time.perf_counter() - began
            print(
                f"{log} {done}/{len(work)} {entry.group} {entry.label} {entry.strategy}/{entry.sampler} "
                f"seed {entry.seed} ({spent:.0f} s)",
                flush=True,
            )

    tables = train_all(
        bundle.prepared, work, cache=Cache(cache, bundle.prepared), workers=jobs, on_done=after
    )
    finals, curves = [], []
    for entry, table in zip(entries, tables, strict=True):
        head = {
            "task": bundle.source.name, "k": entry.k, "group": entry.group, "label": entry.label,
            "strategy": entry.strategy, "sampler": entry.sampler, "seed": entry.seed,
            "rows": sum(len(bundle.prepared.train[c]) for c in entry.members),
        }  # fmt: skip
        wide = widen(table)
        last = wide.filter(pl.col("round") == pl.col("round").max())
        everyone = last.filter(pl.col("rows") == "all").to_dicts()[0]
        own = last.filter(pl.col("rows") == "own").to_dicts()[0]
        finals.append(
            {**head, "members": " ".join(entry.members), **{name: everyone[name] for name, *_ in KEPT},
             **{f"own_{name}": own[name] for name, *_ in KEPT[:8]}}
        )  # fmt: skip
        path = wide.filter(pl.col("rows") == "all").select("round", "accuracy", "f1", "eod", "spd")
        curves += [{**head, **line} for line in path.to_dicts()]
    return pl.DataFrame(finals), pl.DataFrame(curves)


def widen(table: pl.DataFrame) -> pl.DataFrame:
    """Records of a training, a row for each round and tested part, metrics as columns."""
    tested = table.filter(pl.col("rows") != "training")
    parts = [
        pl.col("value")
        .filter((pl.col("metric") == metric) & (pl.col("attribute") == attribute))
        .first()
        .alias(name)
        for name, metric, attribute in KEPT
    ]
    return tested.group_by(["round", "rows"], maintain_order=True).agg(parts).sort("round")
