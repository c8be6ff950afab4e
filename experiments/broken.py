"""Broken data: three in ten clients hold broken data; what choosing by private statistics does about it.

    python experiments/broken.py          # docs/results/broken.csv, about half an hour on one core

Four kinds of dirt were fixed before the first run, and all of them are reported: every label of a dirty client
inverted; its labels shuffled; seven in ten positive labels of women erased; every feature shuffled on its own. Dirty
clients are drawn at random. Tables and training rows of dirty clients are dirty, the held-out rows that every model is
tested on are not. Logistic regression, k = 5, ε = 1, nothing screened or excluded.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

sys.path.insert(0, str(Path(__file__).parent))

import census
import postprocessing
from census import Tabled
from federations import draw_random
from store import CACHE, RESULTS, Store, write_table
from trained import Recipe

from fedwise.estimation import estimate
from fedwise.owner.tables import count
from fedwise.planning import plan
from fedwise.schema.schema import Role, Schema
from fedwise.search import select
from fedwise.training.encoding import Rows
from fedwise.training.federation import Prepared
from fedwise.training.local import predict
from fedwise.training.metrics import measure_decisions, measure_scores
from fedwise.training.model import Model

TASKS = ("income2018", "income2024", "employment2024", "coverage2024", "travel2024")
SHARE = 0.3
ERASED = 0.7
KEPT = ("auc", "loss", "balanced_accuracy@rate", "eod:SEX@rate", "spd:SEX@rate")
Codes = Any
Dirt = Callable[[Any, Any, Any, np.random.Generator], tuple[Any, Any, Any]]


def flipped(x: Any, y: Any, s: Any, rng: np.random.Generator) -> tuple[Any, Any, Any]:
    """Every label inverted."""
    return x, 1 - y, s


def shuffled(x: Any, y: Any, s: Any, rng: np.random.Generator) -> tuple[Any, Any, Any]:
    """Labels in random order."""
    return x, rng.permutation(y), s


def erased(x: Any, y: Any, s: Any, rng: np.random.Generator) -> tuple[Any, Any, Any]:
    """Most positive labels of the group with the highest code made negative (women, as SEX is coded)."""
    gone = (s == s.max(initial=0)) & (rng.random(len(y)) < ERASED)
    return x, np.where(gone, 0, y).astype(y.dtype), s


def scrambled(x: Any, y: Any, s: Any, rng: np.random.Generator) -> tuple[Any, Any, Any]:
    """Every feature in a random order of its own. Features are the columns of `x`."""
    return np.stack([rng.permutation(column) for column in x.T], axis=1) if x.size else x, y, s


DIRTS: dict[str, Dirt] = {
    "labels inverted": flipped,
    "labels shuffled": shuffled,
    "positives of women erased": erased,
    "features shuffled": scrambled,
}


def dirty_codes(schema: Schema, codes: Codes, dirt: Dirt, rng: np.random.Generator) -> Codes:
    """Codes of a client's rows, made dirty; shape (variables, rows)."""
    roles = [column.role for column in schema.columns]
    features = [i for i, role in enumerate(roles) if role == Role.FEATURE]
    target, sex = roles.index(Role.TARGET), roles.index(Role.SENSITIVE)
    out = codes.copy()
    x, out[target], out[sex] = dirt(codes[features].T, codes[target], codes[sex], rng)
    out[features] = x.T
    return out


def dirty_rows(rows: Rows, dirt: Dirt, rng: np.random.Generator, attribute: int) -> Rows:
    """Encoded training rows, made dirty in the same way. Inputs of one-hot columns and numbers are both shuffled."""
    s = rows.groups[attribute]
    _, y, _ = dirt(np.empty((len(rows), 0)), rows.y, s, rng)
    if dirt is not scrambled:
        return replace(rows, y=y.astype(np.float32))
    hot, _, _ = dirt(rows.hot, rows.y, s, rng)
    dense, _, _ = dirt(rows.dense, rows.y, s, rng) if rows.dense.size else (rows.dense, y, s)
    return replace(rows, hot=hot, dense=dense)


def measure(
    prepared: Prepared, members: Sequence[str], constraint: str = "", **recipe: bool
) -> dict[str, float]:
    """Metrics on the held-out rows of all clients; post-processed at the same positive rate where asked."""
    model = Model.named("logistic", prepared.encoder.width)
    parameters = Recipe("logistic", **recipe).train(prepared, members)
    judged = prepared.held_out
    scores = predict(model, parameters, judged)
    groups = dict(zip(prepared.encoder.attributes, judged.groups, strict=True))
    found = dict(measure_scores(scores, judged.y, groups))
    if constraint:
        trained = Rows.concat([prepared.train[client] for client in members])
        at = prepared.encoder.attributes.index("SEX")
        kept = postprocessing.thin(len(trained))
        below = (
            predict(model, parameters, trained)[kept],
            trained.y[kept],
            trained.groups[at][kept].astype(np.int64),
        )
        here = scores, judged.groups[at].astype(np.int64)
        decided = postprocessing.at_rate(constraint, below, here, float((judged.y > 0.5).mean()))
        found |= {
            f"{name}@rate": value for name, value in measure_decisions(decided, judged.y, groups).items()
        }
    return {name: float(found[name]) for name in KEPT}


def evaluate(
    task: str, name: str, split: int, *, draws: int, random: int, k: int = 5, mean_rows: int = 4000,
    test_rows: int = 30_000, states: int | None = None,
) -> list[dict[str, object]]:  # fmt: skip
    """Rows of one task, dirt and split."""
    dirt = DIRTS[name]
    bundle = census.load(task, mean_rows=mean_rows, test_rows=test_rows, split=split, states=states)
    clients = bundle.sex.clients
    rng = np.random.default_rng([split, list(DIRTS).index(name), 0xD1])
    dirty = set(rng.permutation(clients)[: round(SHARE * len(clients))].tolist())
    train = dict(bundle.prepared.train)
    at = bundle.prepared.encoder.attributes.index("SEX")
    for client in sorted(dirty):
        train[client] = dirty_rows(train[client], dirt, rng, at)
    prepared = replace(bundle.prepared, train=train)
    frames = census.training_frames(task, split=split, states=states)
    tabled = with_dirt(frames, bundle.sex, dirty, dirt, rng)
    work: list[tuple[str, int, Sequence[str], dict[str, Any]]] = [
        ("all", -1, clients, {}),
        ("all_reweighed", -1, clients, {"reweighed": True}),
        ("all_threshold_optimizer_tpr", -1, clients, {"constraint": "tpr"}),
        ("all_threshold_optimizer_eo", -1, clients, {"constraint": "eo"}),
        ("clean", -1, [c for c in clients if c not in dirty], {}),
    ]
    for draw in range(draws):
        found = select(
            estimate(tabled.pool(1.0, seed=1000 * split + draw)), k, method="annealing", alternatives=0,
            evidence="none", threads=1,
        )  # fmt: skip
        work.append(("pfl", draw, sorted(found.clients), {}))
        work.append(("pfl_threshold_optimizer_tpr", draw, sorted(found.clients), {"constraint": "tpr"}))
    work += [("random", i, members, {}) for i, members in enumerate(draw_random(clients, k, random))]
    head = {"task": task, "dirt": name, "split": split}
    return [
        {**head, "kind": kind, "draw": draw, "dirty": sum(c in dirty for c in members) / len(members),
         **measure(prepared, members, **options)}
        for kind, draw, members, options in work
    ]  # fmt: skip


def with_dirt(
    frames: Mapping[str, pl.DataFrame], clean: Tabled, dirty: set[str], dirt: Dirt, rng: np.random.Generator
) -> Tabled:
    """The exact tables of the pool, with dirty clients counted again."""
    layout = plan(clean.schema, float("inf")).layout
    rows = [
        count(dirty_codes(clean.schema, clean.schema.encode(frames[client]), dirt, rng), layout).exact
        if client in dirty
        else exact
        for client, exact in zip(clean.clients, clean.matrix, strict=True)
    ]
    return replace(clean, matrix=np.stack(rows))


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", default=",".join(TASKS), help="names, with commas between")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--random", type=int, default=30)
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    store = Store(options.cache / "dirty")
    rows: list[dict[str, object]] = []
    for task in options.tasks.split(","):
        for split in range(options.splits):
            for name in DIRTS:
                question = {
                    "what": "dirty/1", "task": task, "split": split, "dirt": name, "draws": options.draws,
                    "random": options.random,
                }  # fmt: skip
                work = partial(evaluate, task, name, split, draws=options.draws, random=options.random)
                rows += store.get(question, work)
                print(f"[{task}] split {split}, {name}: done", flush=True)
    write_table(pl.DataFrame(rows, infer_schema_length=None), options.out / "broken.csv")


if __name__ == "__main__":
    main()
