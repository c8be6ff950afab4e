"""The paper's evaluation as one resumable run.

    python experiments/paper.py                      # everything; the same command continues after a stop
    python experiments/paper.py --quick              # a small one, under five minutes
    python experiments/paper.py --tasks income2018 --waves 1

Every selection and every training is kept in a cache named by its content (``build/experiments``), tables are
written to ``docs/results`` after each step, and ``experiments/figures.py`` makes the figures and the page.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

sys.path.insert(0, str(Path(__file__).parent))

import census
import federations as feds
from census import Bundle
from runs import Entry, run
from store import CACHE, RESULTS, Store, machine, write_table

TASKS = ("income2018", "income2024", "employment2024", "coverage2024", "travel2024")
STRATEGIES = ("fedprox", "scaffold", "scaffold-adam")
SAMPLERS = ("ucb_cs", "fed_sampling", "threshold", "cluster_fl")
REFERENCE = census.RECORDS.parent / "reference-results" / "best_federations.csv"


@dataclass(frozen=True)
class Scale:
    """How much of everything."""

    rounds: int = 50
    every: int = 2
    seeds: int = 3
    sizes: tuple[int, ...] = (5, 10, 15)
    random: dict[int, int] = field(default_factory=lambda: {5: 24, 10: 9, 15: 6})
    matched: dict[int, int] = field(default_factory=lambda: {5: 15, 10: 6, 15: 6})
    #: Random federations that are trained with every other strategy and sampler too.
    others: int = 8
    draws: int = 10
    trained_draws: int = 3
    epsilons: tuple[float, ...] = feds.EPSILONS
    calibrated: int = 50
    calibrated_sizes: tuple[int, int] = (2, 10)
    states: int | None = None
    mean_rows: int | None = None
    test_rows: int = census.TEST_ROWS
    #: Compile the search before it is timed.
    warm: bool = True
    resamples: int = 1000
    #: Proposals of each chain that searches by forecast.
    forecast_steps: int = 2000


FULL = Scale()
QUICK = Scale(
    rounds=6, sizes=(3, 5), random={3: 4, 5: 4}, matched={3: 3, 5: 3}, others=2, draws=2, trained_draws=1,
    epsilons=(0.1, 1.0, float("inf")), calibrated=12, calibrated_sizes=(2, 5), states=12, mean_rows=800,
    test_rows=8000,
)  # fmt: skip
TINY = Scale(
    rounds=2, every=1, sizes=(3,), seeds=1, random={3: 2}, matched={3: 2}, others=1, draws=1, trained_draws=1,
    epsilons=(1.0, float("inf")), calibrated=8, calibrated_sizes=(2, 3), states=6, mean_rows=150, test_rows=600,
    warm=False, resamples=20, forecast_steps=40,
)  # fmt: skip


class Evaluation:
    """One task through all waves; `tables` collects what is written."""

    def __init__(
        self, bundle: Bundle, scale: Scale, *, cache: Path, jobs: int, reference: Path | None
    ) -> None:
        self.bundle = bundle
        self.scale = scale
        self.cache = cache
        self.jobs = jobs
        self.store = Store(cache / "answers")
        self.first = scale.sizes[0]
        print(f"[{bundle.source.name}] selecting", flush=True)
        if scale.warm:
            feds.warm_up(bundle.sex)
        self.chosen = feds.selections(
            bundle, sizes=scale.sizes, store=self.store, reference=reference, steps=scale.forecast_steps
        )
        self.swept = feds.sweep(
            bundle, k=self.first, draws=scale.draws, epsilons=scale.epsilons, store=self.store
        )
        self.random_losses = {k: feds.random_losses(bundle, k, 300) for k in scale.sizes}
        self.parts: list[tuple[pl.DataFrame, pl.DataFrame]] = []
        self.study: pl.DataFrame | None = None
        self.calibration: dict[str, Any] | None = None

    def wave(self, number: int) -> None:
        """Train what belongs to a wave: 1 the smallest size, 2 its rivals, 3 larger sizes and calibration."""
        entries = {1: self._main, 2: self._rivals, 3: self._larger}[number]()
        self.parts.append(
            run(
                self.bundle, entries, rounds=self.scale.rounds, every=self.scale.every,
                cache=self.cache / "trainings", jobs=self.jobs, log=f"[{self.bundle.source.name} wave {number}]",
            )
        )  # fmt: skip
        if number == 3:
            self._calibrate()

    def _federations(self, k: int) -> list[Entry]:
        """Chosen federations with every seed; random and matched ones with a seed each."""
        seeds = self.scale.seeds
        out = [
            Entry(line["label"], line["label"], k, tuple(line["members"]), seed=seed)
            for line in self.chosen
            if line["k"] == k
            for seed in range(seeds)
        ]
        for i, members in enumerate(feds.draw_random(self.bundle.sex.clients, k, self.scale.random[k])):
            out.append(Entry("random", f"random {i:02d}", k, tuple(members), seed=i % seeds))
        own = next(line["members"] for line in self.chosen if line["k"] == k and line["label"] == "chosen")
        matched = feds.draw_matched(dict(self.bundle.rows), own, self.scale.matched[k])
        for i, members in enumerate(matched):
            out.append(Entry("matched", f"matched {i:02d}", k, tuple(members), seed=i % seeds))
        return out

    def _main(self) -> list[Entry]:
        return self._federations(self.first)

    def _rivals(self) -> list[Entry]:
        k, seeds = self.first, self.scale.seeds
        out = []
        drawn = feds.draw_random(self.bundle.sex.clients, k, self.scale.random[k])[: self.scale.others]
        for i, members in enumerate(drawn):
            for strategy in STRATEGIES:
                out.append(Entry("random", f"random {i:02d}", k, tuple(members), strategy, seed=i % seeds))
            for sampler in SAMPLERS:
                out.append(
                    Entry("random", f"random {i:02d}", k, tuple(members), sampler=sampler, seed=i % seeds)
                )
        own = next(line["members"] for line in self.chosen if line["k"] == k and line["label"] == "chosen")
        for seed in range(seeds):
            for strategy in STRATEGIES:
                out.append(Entry("chosen", "chosen", k, tuple(own), strategy, seed=seed))
            for sampler in SAMPLERS:
                out.append(Entry("chosen", "chosen", k, tuple(own), sampler=sampler, seed=seed))
        for line in self.swept:
            if line["draw"] < self.scale.trained_draws:
                label = f"{line['mode']} epsilon {line['epsilon']:g} draw {line['draw']}"
                out.append(Entry("sweep", label, k, tuple(line["members"]), seed=line["draw"] % seeds))
        everyone = tuple(self.bundle.sex.clients)
        out += [Entry("everyone", "everyone", len(everyone), everyone, seed=seed) for seed in range(seeds)]
        return out

    def _larger(self) -> list[Entry]:
        return [entry for k in self.scale.sizes[1:] for entry in self._federations(k)]

    def _calibrate(self) -> None:
        from fedwise.training.calibration import study
        from fedwise.training.simulate import Config

        scale = self.scale
        config = Config(rounds=scale.rounds, evaluate_every=scale.rounds, replicates=0)
        found = study(
            self.bundle.prepared, self.bundle.sex.truth(), count=scale.calibrated, sizes=scale.calibrated_sizes,
            config=config, cache=self.cache / "trainings", workers=self.jobs, resamples=scale.resamples,
        )  # fmt: skip
        self.study = found.to_frame().with_columns(pl.lit(self.bundle.source.name).alias("task"))
        self.calibration = {"task": self.bundle.source.name, **msgspec.to_builtins(found.calibration)}


def write(done: Sequence[Evaluation], out: Path, scale: Scale, *, quick: bool, seconds: float) -> None:
    """All tables of what is done so far."""
    chosen = pl.DataFrame(
        [{**line, "members": " ".join(line["members"])} for e in done for line in e.chosen],
        infer_schema_length=None,
    )
    write_table(chosen, out / "federations.csv")
    swept = pl.DataFrame(
        [{**line, "members": " ".join(line["members"])} for e in done for line in e.swept],
        infer_schema_length=None,
    )
    write_table(swept, out / "sweep.csv")
    losses = [
        {"task": e.bundle.source.name, "k": k, "true_loss": loss}
        for e in done
        for k, values in e.random_losses.items()
        for loss in values
    ]
    write_table(pl.DataFrame(losses), out / "random_losses.csv")
    finals = [finals for e in done for finals, _ in e.parts if finals.height]
    if finals:
        write_table(pl.concat(finals), out / "runs.csv")
        curves = pl.concat([curves for e in done for _, curves in e.parts if curves.height])
        small = curves.with_columns(
            pl.col(pl.Float64).cast(pl.Float32), pl.col("round", "k", "seed").cast(pl.Int16)
        )
        out.mkdir(parents=True, exist_ok=True)
        small.write_parquet(out / "curves.parquet", compression="zstd", compression_level=15)
    studies = [e.study for e in done if e.study is not None]
    if studies:
        write_table(pl.concat(studies), out / "calibration.csv")
    facts = {
        **machine(),
        "quick": quick,
        "wall_seconds": round(seconds),
        "rounds": scale.rounds,
        "seeds": scale.seeds,
        "tasks": [
            {
                "name": e.bundle.source.name,
                "title": e.bundle.source.title,
                "file": e.bundle.source.file,
                "clients": len(e.bundle.rows),
                "training_rows": sum(e.bundle.rows.values()),
                "trained_share": e.bundle.share,
                "test_rows": len(e.bundle.prepared.held_out),
                "positive_rate": e.bundle.positive,
                "tables": int(e.bundle.sex.truth().layout.tables),
                "cells": int(e.bundle.sex.truth().layout.cells),
                "notes": list(e.bundle.notes),
                "waves": len(e.parts),
            }
            for e in done
        ],
        "calibrations": [e.calibration for e in done if e.calibration is not None],
    }
    (out / "run.json").write_bytes(msgspec.json.format(msgspec.json.encode(facts), indent=1) + b"\n")


def evaluate(
    tasks: Sequence[str], scale: Scale, *, waves: Sequence[int] = (1, 2, 3), jobs: int = 2, cache: Path = CACHE,
    out: Path = RESULTS, records: Path | None = None, reference: Path | None = REFERENCE, quick: bool = False,
) -> None:  # fmt: skip
    """Run the waves over the tasks, writing tables after every step."""
    began = time.perf_counter()
    done: dict[str, Evaluation] = {}
    for number in waves:
        for task in tasks:
            if not census.available(task, records):
                print(f"[{task}] left out: its file is not there", flush=True)
                continue
            if task not in done:
                bundle = census.load(
                    task,
                    records=records,
                    states=scale.states,
                    mean_rows=scale.mean_rows,
                    test_rows=scale.test_rows,
                )
                done[task] = Evaluation(bundle, scale, cache=cache, jobs=jobs, reference=reference)
                write(list(done.values()), out, scale, quick=quick, seconds=time.perf_counter() - began)
            done[task].wave(number)
            write(list(done.values()), out, scale, quick=quick, seconds=time.perf_counter() - began)
    print(f"done in {time.perf_counter() - began:.0f} s; tables in {out}", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a small run on ACSIncome 2018, under 5 minutes")
    parser.add_argument("--tiny", action="store_true", help="the smallest run, on synthetic states")
    parser.add_argument("--tasks", help=f"comma-separated, of {', '.join(census.SOURCES)}")
    parser.add_argument(
        "--waves", default="1,2,3", help="1 smallest size, 2 rivals, 3 larger sizes, calibration"
    )
    parser.add_argument("--jobs", type=int, default=2, help="training processes")
    parser.add_argument("--data", type=Path, default=None, help="directory of the census files")
    parser.add_argument("--cache", type=Path, default=None)
    parser.add_argument("--out", type=Path, default=None, help="directory of the tables")
    options = parser.parse_args(arguments)
    small = options.quick or options.tiny
    scale = TINY if options.tiny else QUICK if options.quick else FULL
    usual = ("synthetic",) if options.tiny else ("income2018",) if options.quick else TASKS
    tasks = options.tasks.split(",") if options.tasks else list(usual)
    unknown = [task for task in tasks if task not in census.SOURCES]
    if unknown:
        parser.error(f"task must be one of {', '.join(census.SOURCES)}, got '{unknown[0]}'")
    if options.quick and not options.tasks and not census.available("income2018", options.data):
        tasks = ["synthetic"]
    try:
        evaluate(
            tasks, scale, waves=[int(wave) for wave in options.waves.split(",")], jobs=options.jobs,
            cache=options.cache or CACHE, out=options.out or (CACHE / "quick" if small else RESULTS),
            records=options.data, quick=small,
        )  # fmt: skip
    except KeyboardInterrupt:
        print("stopped; run the same command again to continue", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
