"""Dirty pools: who is found, who is chosen, and what the trained model is worth beside robust aggregation.

    python experiments/dirty.py clean           # false alarms on ten clean pools
    python experiments/dirty.py detection       # the whole grid of kinds, severities, shares and ε
    python experiments/dirty.py training        # 30% dirty, medium and heavy, ε = 1; some ways in a part of the cells
    python experiments/dirty.py training --full # the whole grid
    python experiments/dirty.py valuation       # rivals of the card
    python experiments/dirty.py page            # docs/results/dirty.md and figures

Every answer is stored as it comes: the same command goes on after a stop. Rates of the card were chosen on four pools
(`spoilt.TUNED`) under seeds below 200; what is reported uses seeds from 200. `spoilt.HELD_OUT` chose nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

sys.path.insert(0, str(Path(__file__).parent))

from dirt import KINDS, PROMISED, SEVERITIES, Severity
from dirty_training import Arena, Choice, train_case
from quality import auc
from spoilt import CLEAN, TASKS, Case, World
from store import CACHE, RESULTS, Store, write_table

from fedwise.planning import plan
from fedwise.pool.card import Card, quality

FIRST = 200
#: Seed whose medium cells are also trained by forecast, fairness rules and robust rules over random federations.
MORE = 202
SHARES = (0.3, 0.1, 0.5)
EPSILONS = (1.0, 0.3)
#: Changes when answers stored before no longer hold.
VERSION = 3


@cache
def world(task: str, *, whole: bool = False) -> World:
    """A task, read once."""
    return World.read(task, whole=whole)


def clean(task: str, seeds: int, epsilon: float = 1.0) -> list[dict[str, Any]]:
    """A row for each draw of the noise: who is a suspect or in doubt, and who could be judged at all."""
    here, made = world(task, whole=True), plan(world(task, whole=True).schema, epsilon)
    out = []
    for seed in range(FIRST, FIRST + seeds):
        cards = quality(here.release(made, seed)).values()
        out.append(
            {"task": task, "epsilon": epsilon, "seed": seed, "clients": len(cards),
             "suspects": " ".join(c.client for c in cards if c.suspect),
             "doubtful": sum(c.doubtful for c in cards), **_power(cards)}
        )  # fmt: skip
    return out


def _power(cards: Any) -> dict[str, float]:
    """Share of the clients of which each entry could tell its stated effect."""
    kinds = ("label_noise", "label_bias", "feature_noise", "repeated")
    return {
        f"telling_{kind}": float(np.mean([e.telling for c in cards for e in c.entries if e.kind == kind]))
        for kind in kinds
    }


def detect(case: Case, cards: Sequence[Card]) -> dict[str, float]:
    """How well the card tells the spoilt clients."""
    dirty = case.is_dirty([card.client for card in cards])
    score = np.array([card.score for card in cards])
    suspect, doubtful = (np.array([getattr(c, name) for c in cards]) for name in ("suspect", "doubtful"))
    return {
        "auc": auc(score[dirty], score[~dirty]),
        "suspects": float(suspect[dirty].mean()), "suspects_clean": float(suspect[~dirty].mean()),
        "doubted": float(doubtful[dirty].mean()), "doubted_clean": float(doubtful[~dirty].mean()),
        **_power(cards),
    }  # fmt: skip


def detection(cell: dict[str, Any]) -> dict[str, Any]:
    """One cell of the grid: detection, and dirty members of the default and with suspects excluded."""
    case, pool = _case(cell)
    return {**cell, **_detected(case, Choice.of(pool))}


def _detected(case: Case, choice: Choice) -> dict[str, float]:
    picked = {
        name: float(case.is_dirty(choice.choose(exclude=exclude)).mean())
        for name, exclude in (("chosen", ()), ("chosen_quality", choice.left_out))
    }
    return {**detect(case, list(choice.cards.values())), **picked}


def training(cell: dict[str, Any], *, more: bool, rehearsed: bool) -> list[dict[str, Any]]:
    """One cell: a row for each way to train."""
    case, pool = _case(cell)
    choice = Choice.of(pool)
    found = {f"card_{name}": value for name, value in detect(case, list(choice.cards.values())).items()}
    rows = train_case(case, choice, seed=cell["seed"], more=more, rehearsed=rehearsed)
    return [{**cell, **row, **(found if row["way"] == "chosen, quality" else {})} for row in rows]


def valuation(cell: dict[str, Any]) -> list[dict[str, Any]]:
    """One cell: detection AUC of the card and of its rivals."""
    from valuation import from_models, from_tables

    case, pool = _case(cell)
    clients = case.world.clients
    dirty = case.is_dirty(clients)
    card: npt.NDArray[np.float64] = np.array([one.score for one in quality(pool).values()])
    models = from_models(Arena.of(case, seed=cell["seed"]), clients, seed=cell["seed"])
    scores = {"card": card, **from_tables(pool), **models}
    return [
        {**cell, "rival": name, "auc": auc(score[dirty], score[~dirty])} for name, score in scores.items()
    ]


def _case(cell: dict[str, Any]) -> tuple[Case, Any]:
    severity: Severity = cell["severity"]
    case = Case.make(
        world(cell["task"]), kind=cell["kind"], severity=severity, share=cell["share"], seed=cell["seed"]
    )
    return case, case.world.release(plan(case.world.schema, cell["epsilon"]), cell["seed"])


def cells(
    tasks: Sequence[str], kinds: Sequence[str], severities: Sequence[str], shares: Sequence[float],
    epsilons: Sequence[float], seeds: range,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """The grid; the cells that answer most come first."""
    for epsilon, share, seed, task, severity, kind in product(
        epsilons, shares, seeds, tasks, severities, kinds
    ):
        yield {
            "task": task, "kind": kind, "severity": severity, "share": share, "epsilon": epsilon, "seed": seed,
        }  # fmt: skip


def _collect(store: Store, what: str, grid: Iterator[dict[str, Any]], answer: Any, path: Path) -> None:
    rows: list[dict[str, Any]] = []
    for number, cell in enumerate(grid):
        found = store.get({"what": f"{what}/{VERSION}", **cell}, lambda cell=cell: answer(cell))
        rows += found if isinstance(found, list) else [found]
        if number % 20 == 19:
            print(what, number + 1, "cells", flush=True)
            write_table(pl.DataFrame(rows, infer_schema_length=None), path)
    write_table(pl.DataFrame(rows, infer_schema_length=None), path)


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=["clean", "detection", "training", "valuation", "page"])
    parser.add_argument("--tasks", default="", help="names, with commas between")
    parser.add_argument("--seeds", type=int, default=0, help="how many; default by part")
    parser.add_argument("--full", action="store_true", help="the whole grid of trainings")
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args(arguments)
    tasks = tuple(name for name in asked.tasks.split(",") if name)
    store, out = Store(asked.cache / "dirty"), asked.out
    if asked.part == "clean":
        rows = []
        for task in tasks or CLEAN:
            question = {"what": f"clean/{VERSION}", "task": task, "seeds": asked.seeds or 10}
            rows += store.get(question, lambda task=task: clean(task, asked.seeds or 10))
            print(task, "done", flush=True)
            write_table(pl.DataFrame(rows, infer_schema_length=None), out / "dirty_clean.csv")
    elif asked.part == "detection":
        seeds = range(FIRST, FIRST + (asked.seeds or 1))
        grid = cells(tasks or TASKS, KINDS, SEVERITIES, SHARES, EPSILONS, seeds)
        _collect(store, "detection", grid, detection, out / "dirty_detection.csv")
    elif asked.part == "training":
        seeds = range(FIRST, FIRST + (asked.seeds or 3))
        small = ((tasks or TASKS), PROMISED, ("medium", "heavy"), (0.3,), (1.0,))
        whole = ((tasks or TASKS), KINDS, SEVERITIES, SHARES, EPSILONS)
        grid = cells(*(whole if asked.full else small), seeds)

        def answer(cell: dict[str, Any]) -> list[dict[str, Any]]:
            more = cell["seed"] == MORE and cell["severity"] == "medium"
            return training(cell, more=more, rehearsed=more and cell["kind"] == "biased labels")

        _collect(store, "training", grid, answer, out / "dirty_training.csv")
    elif asked.part == "valuation":
        seeds = range(FIRST, FIRST + (asked.seeds or 1))
        grid = cells(tasks or TASKS, PROMISED, ("medium",), (0.3,), (1.0,), seeds)
        _collect(store, "valuation", grid, valuation, out / "dirty_valuation.csv")
    else:
        from dirty_page import write

        write(out)


if __name__ == "__main__":
    main()
