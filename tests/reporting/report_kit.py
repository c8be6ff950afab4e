"""Pools and tables of metrics for the tests of the report."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

import fedwise as fw

#: A state, a plain name, and names that would break a careless page.
NAMES = (
    "CA",
    "Ward 7",
    "<script>alert(1)",
    '"><img src=x onerror=alert(1)>',
    'O\'Brien & "Sons"',
    "Ünïcode-Klinik",
    "NY",
    "WA",
)


def people(rows: int, seed: int) -> pl.DataFrame:
    """Rows that fit the small schema, with associations that differ by seed."""
    rng = np.random.default_rng(seed)
    sex = rng.integers(1, 3, rows)
    job = rng.choice(3, rows, p=[0.5, 0.3, 0.2] if seed % 2 else [0.2, 0.3, 0.5])
    pull = 4_000 * (seed % 4)
    income = rng.normal(30_000 + 15_000 * job + pull * (sex == 1), 15_000, rows).round()
    return pl.DataFrame(
        {
            "AGE": rng.integers(0, 100, rows),
            "JOB": np.array(["farm", "shop", "office"])[job],
            "SEX": sex,
            "INCOME": income,
        }
    )


def make_pool(
    schema: fw.Schema, names: tuple[str, ...], *, epsilon: float = 1.0, rows: int = 3000
) -> fw.Pool:
    """A pool with real noise of `epsilon`, except that it is simulated and so repeatable."""
    return fw.Pool.of(make_releases(schema, names, epsilon=epsilon, rows=rows))


def make_releases(
    schema: fw.Schema, names: tuple[str, ...] = NAMES, *, epsilon: float = 1.0, rows: int = 3000
) -> Iterator[fw.Release]:
    """One release a name, each of other people."""
    plan = fw.plan(schema, epsilon)
    for i, name in enumerate(names):
        frame = people(rows + 200 * i, i)
        if plan.private:
            yield fw.release(plan, frame, client=name, simulated=True, seed=i)
        else:
            yield fw.release(plan, frame, client=name, no_privacy=True)


def charged_release(plan: fw.Plan, frame: pl.DataFrame, client: str) -> fw.Release:
    """A release with noise of the operating system, charged to a ledger that is thrown away."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = fw.Ledger(Path(folder) / "budget.db", plan.epsilon, plan.delta)
        return fw.release(plan, frame, client=client, ledger=ledger)


def metrics(level: float, seed: int, *, rounds: int = 4) -> pl.DataFrame:
    """A table of metrics as a run directory holds it."""
    rng = np.random.default_rng(seed)
    rows = []
    for turn in range(rounds + 1):
        for metric, attribute in (
            ("balanced_accuracy", ""),
            ("f1", ""),
            ("loss", ""),
            ("spd", "SEX"),
            ("eod", "SEX"),
        ):
            value = level + 0.01 * turn + 0.001 * rng.normal()
            ends = (value - 0.01, value + 0.01) if turn == rounds else (float("nan"), float("nan"))
            for tested in ("all", "own"):
                shift = 0.5 if tested == "own" else 0.0
                rows.append(
                    (turn, tested, "", metric, attribute, value + shift, ends[0] + shift, ends[1] + shift)
                )
        rows.append((turn, "training", "CA", "loss", "", 0.3, float("nan"), float("nan")))
    names = ["round", "rows", "client", "metric", "attribute", "value", "low", "high"]
    return pl.DataFrame(rows, schema=names, orient="row")
