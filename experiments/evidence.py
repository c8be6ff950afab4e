"""Trained models of chosen, random and rival federations, measured without and with a threshold.

    python experiments/evidence.py                      # the five tasks; the same command continues after a stop
    python experiments/evidence.py --tasks income2018 --splits 1
    python experiments/evidence.py --size 10 --models logistic
    python experiments/evidence.py --quick              # synthetic states, under 90 seconds
    python experiments/evidence.py --held-out           # once, at the end: the two tasks of HELD_OUT.md

Everything is kept by content in ``build/experiments``. ``docs/results/evidence.parquet`` has a row for each
evaluated federation, written after each task and split; ``evidence_federations.csv`` says who their members are.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
from filelock import FileLock

sys.path.insert(0, str(Path(__file__).parent))

import census
import federations as feds
from census import Bundle
from choices import FORECAST, choose_all, describe_all
from measured import METRICS, Job, measure_all
from postprocessing import CONSTRAINTS, SHIFTS
from store import CACHE, RESULTS, Store, machine, read_table, write_table
from trained import Recipe

from fedwise.files import write_new

TASKS = ("income2018", "income2024", "employment2024", "coverage2024", "travel2024")
MODELS = ("mlp", "logistic")
#: Known before training; the forecast of federations of `k` clients only.
DESCRIBED = (
    "label_rate", "estimated_label_rate", "pfl", "pfl_true", *(f"forecast_{name}" for name in FORECAST)
)  # fmt: skip
#: What is done to decisions, by the end of the kind's name.
TREATMENTS = {
    **{f"threshold_optimizer_{name}": name for name in CONSTRAINTS},
    **{f"shifted_{percent}": f"shift{percent}" for percent in SHIFTS},
}
#: Draws whose federations are post-processed as well.
TREATED_DRAWS = 3
#: Rows that one evaluation replaces.
SAME = ("task", "split", "k", "model")
HEAD = ("task", "split", "k", "model", "kind", "draw", "federation", "rows")


@dataclass(frozen=True)
class Scale:
    """How much of everything. Rounds and step were set by the convergence of random federations of two tasks."""

    splits: int = 3
    k: int = 5
    random: int = 200
    matched: int = 50
    draws: int = 10
    rounds: int = 20
    mean_rows: int = 4000
    test_rows: int = 30_000
    forecast_steps: int = 2000
    states: int | None = None
    models: tuple[str, ...] = MODELS


FULL = Scale()
QUICK = Scale(
    splits=1, k=3, random=20, matched=5, draws=2, rounds=3, mean_rows=300, test_rows=3000, forecast_steps=200,
    states=12,
)  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One evaluation: a federation, and what it stands for."""

    kind: str
    members: tuple[str, ...]
    draw: int = -1
    constraint: str = ""
    reweighed: bool = False

    def job(self, model: str, scale: Scale, split: int) -> Job:
        recipe = Recipe(model, rounds=scale.rounds, seed=split, reweighed=self.reweighed)
        return Job(self.members, recipe, self.constraint)


def identify(members: Sequence[str]) -> str:
    """A short name of a federation that is the same in every split."""
    return hashlib.sha256("\0".join(sorted(members)).encode()).hexdigest()[:10]


def entries(
    bundle: Bundle, matched: Sequence[Sequence[str]], scale: Scale, split: int, store: Store
) -> list[Entry]:
    """Everything that is evaluated on one split of one task, chosen federations last."""
    clients = bundle.sex.clients
    out = [Entry("random", tuple(m)) for m in feds.draw_random(clients, scale.k, scale.random)]
    out += [Entry("row_matched", tuple(m)) for m in matched]
    out += [Entry("all", clients), Entry("all_reweighed", clients, reweighed=True)]
    out += [Entry(f"all_{name}", clients, constraint=treatment) for name, treatment in TREATMENTS.items()]
    for draw in range(-1, scale.draws):
        found = choose_all(
            bundle.sex, scale.k, draw=draw, seed=split, store=store, steps=scale.forecast_steps
        )
        for kind, members in found.items():
            out.append(Entry(kind, tuple(members), draw))
            if kind in ("pfl", "pfl_exact") and draw < TREATED_DRAWS:
                out += [
                    Entry(f"{kind}_{name}", tuple(members), draw, constraint=treatment)
                    for name, treatment in TREATMENTS.items()
                ]
    return out


def evaluate_split(
    bundle: Bundle, listed: Sequence[Entry], scale: Scale, split: int, *, cache: Path, jobs: int
) -> pl.DataFrame:
    """The rows of one split of one task."""
    task, began = bundle.source.name, time.perf_counter()
    work = [(entry, model) for model in scale.models for entry in listed]
    total = len(dict.fromkeys(entry.job(model, scale, split) for entry, model in work))

    def told(done: int) -> None:
        if done % 50 == 0 or done == total:
            print(f"[{task} split {split}] {done}/{total} ({time.perf_counter() - began:.0f} s)", flush=True)

    found = measure_all(
        bundle.prepared, [entry.job(model, scale, split) for entry, model in work], cache=cache, jobs=jobs, on_done=told
    )  # fmt: skip
    distinct = list(dict.fromkeys(entry.members for entry in listed))
    known = describe_all(bundle.sex, distinct, seed=split, store=Store(cache / "answers"))
    described = dict(zip(distinct, known, strict=True))
    lines = []
    for (entry, model), metrics in zip(work, found, strict=True):
        head = (
            task, split, len(entry.members), model, entry.kind, entry.draw, identify(entry.members),
            sum(bundle.rows[c] for c in entry.members),
        )  # fmt: skip
        line: dict[str, Any] = dict(zip(HEAD, head, strict=True))
        line |= {name: described[entry.members].get(name) for name in DESCRIBED}
        line |= {name: metrics.get(name) for name in METRICS}
        lines.append(line)
    types = dict.fromkeys((*DESCRIBED, *METRICS), pl.Float64)
    return pl.DataFrame(lines, schema_overrides=types, infer_schema_length=None)


def evaluate(
    tasks: Sequence[str], scale: Scale, *, cache: Path, out: Path, jobs: int, records: Path | None = None
) -> None:
    """Evaluate tasks, split by split, and write the tables after each."""
    store = Store(cache / "answers")
    for task in tasks:
        matched: list[list[str]] = []
        for split in range(scale.splits):
            began = time.perf_counter()
            bundle = census.load(
                task, records=records, states=scale.states, mean_rows=scale.mean_rows, test_rows=scale.test_rows,
                split=split,
            )  # fmt: skip
            if not matched:
                # Matched to what the loss chooses on the first split, first draw: the same members in every split.
                own = choose_all(
                    bundle.sex,
                    scale.k,
                    draw=0,
                    seed=0,
                    store=store,
                    steps=scale.forecast_steps,
                    kinds=["pfl"],
                )["pfl"]
                matched = feds.draw_matched(dict(bundle.rows), own, scale.matched, within=0.1)
            listed = entries(bundle, matched, scale, split, store)
            table = evaluate_split(bundle, listed, scale, split, cache=cache, jobs=jobs)
            # Several commands may work on different tasks at the same time.
            with FileLock(cache / "evidence.lock"):
                save(table, {identify(e.members): e.members for e in listed}, out)
                note(bundle, scale, split, time.perf_counter() - began, out)
            print(f"[{task} split {split}] done in {time.perf_counter() - began:.0f} s", flush=True)


def save(table: pl.DataFrame, members: dict[str, tuple[str, ...]], out: Path) -> None:
    """Put the rows of a task, split, size and model in place of older ones."""
    path = out / "evidence.parquet"
    parts = [table]
    if path.is_file():
        parts.insert(
            0,
            pl.read_parquet(path).join(table.select(SAME).unique(), on=SAME, how="anti"),
        )
    whole = pl.concat(parts, how="diagonal_relaxed").sort(HEAD[:7], maintain_order=True)
    short = whole.with_columns(
        pl.col(pl.Float64, pl.Float32).cast(pl.Float64).round_sig_figs(5).cast(pl.Float32)
    )
    buffer = io.BytesIO()
    short.write_parquet(buffer, compression="zstd", compression_level=12)
    write_new(path, buffer.getvalue(), force=True)
    named = pl.DataFrame(
        [(table["task"][0], name, " ".join(who)) for name, who in members.items()],
        schema=["task", "federation", "members"],
        orient="row",
    )
    before = read_table(out / "evidence_federations.csv")
    if before is not None:
        named = pl.concat([before, named], how="vertical_relaxed")
    write_table(
        named.unique(["task", "federation"]).sort("task", "federation"), out / "evidence_federations.csv"
    )


def note(bundle: Bundle, scale: Scale, split: int, seconds: float, out: Path) -> None:
    """Add to ``evidence.json`` how this part was made; a part that came from the cache keeps its first time."""
    path = out / "evidence.json"
    facts: dict[str, Any] = msgspec.json.decode(path.read_bytes()) if path.is_file() else {}
    recipe = Recipe()
    part = {
        "clients": len(bundle.rows), "training_rows": sum(bundle.rows.values()),
        "rows_trained_on": sum(len(rows) for rows in bundle.prepared.train.values()),
        "rows_tested_on": len(bundle.prepared.held_out), "positive": round(bundle.positive, 4),
    }  # fmt: skip
    facts.setdefault("tasks", {})[bundle.source.name] = part
    name = f"{bundle.source.name} split {split} k {scale.k} {' '.join(scale.models)}"
    facts.setdefault("seconds", {}).setdefault(name, round(seconds))
    facts["settings"] = {
        "random": scale.random, "row_matched": scale.matched, "draws": scale.draws, "rounds": scale.rounds,
        "lr": recipe.lr, "mean_rows": scale.mean_rows, "test_rows": scale.test_rows, "epsilon": 1.0,
    }  # fmt: skip
    facts["machine"] = machine()
    write_new(path, msgspec.json.format(msgspec.json.encode(facts)) + b"\n", force=True)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", help="names, with commas between; default all")
    parser.add_argument("--splits", type=int, default=FULL.splits)
    parser.add_argument("--size", type=int, default=FULL.k, help="clients of a federation")
    parser.add_argument("--models", default=",".join(MODELS), help="names, with commas between")
    parser.add_argument("--quick", action="store_true", help="synthetic states, a few federations")
    parser.add_argument("--held-out", action="store_true", help="the tasks of HELD_OUT.md, and nothing else")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--out", type=Path, default=None, help="directory of the tables")
    options = parser.parse_args(argv)
    scale = (
        QUICK
        if options.quick
        else Scale(splits=options.splits, k=options.size, models=tuple(options.models.split(",")))
    )
    wanted = census.HELD_OUT if options.held_out else TASKS
    tasks = ("synthetic",) if options.quick else tuple((options.tasks or ",".join(wanted)).split(","))
    if not options.quick and not set(tasks) <= set(wanted):
        parser.error(f"tasks must be among {', '.join(wanted)}; held-out ones need --held-out, and run once")
    out = options.out or (options.cache / "quick" if options.quick else RESULTS)
    evaluate(tasks, scale, cache=options.cache, out=out, jobs=options.jobs)


if __name__ == "__main__":
    main()
