"""Quality: how well the cards find spoilt clients on census pools, and how often they accuse honest ones.

    python experiments/quality.py income2018 coverage2024 --seeds 3

Medium severity: 40% of labels random; 25% flipped; 60% of the positive records of one group recorded negative;
features of half the rows shuffled, each on its own; 200 rows repeated up to the client's size.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).parent))

import census

from fedwise.data import acs, synthetic
from fedwise.owner.noise import add_simulated_noise
from fedwise.owner.tables import Tables, count
from fedwise.planning import Plan, plan
from fedwise.pool.card import Card, quality
from fedwise.pool.pool import Pool
from fedwise.schema.schema import Schema

Codes = npt.NDArray[np.int16]
Spoil = Callable[[Codes, Schema, np.random.Generator], Codes]
SHARE = 0.3


def random_labels(codes: Codes, schema: Schema, rng: np.random.Generator) -> Codes:
    """40% of the labels are drawn evenly."""
    made = codes.copy()
    hit = rng.random(codes.shape[1]) < 0.4
    made[schema.target, hit] = rng.integers(0, schema.sizes[schema.target], hit.sum())
    return made


def flipped_labels(codes: Codes, schema: Schema, rng: np.random.Generator) -> Codes:
    """25% of the labels are the other one."""
    made = codes.copy()
    hit = rng.random(codes.shape[1]) < 0.25
    made[schema.target, hit] = 1 - made[schema.target, hit]
    return made


def biased_labels(codes: Codes, schema: Schema, rng: np.random.Generator) -> Codes:
    """60% of the positive records of the last group are recorded negative."""
    made = codes.copy()
    group = schema.sensitive[0]
    there = (codes[group] == schema.sizes[group] - 1) & (codes[schema.target] == 1)
    made[schema.target, there & (rng.random(codes.shape[1]) < 0.6)] = 0
    return made


def shuffled_features(codes: Codes, schema: Schema, rng: np.random.Generator) -> Codes:
    """In half of the rows every feature is permuted on its own."""
    made = codes.copy()
    half = np.flatnonzero(rng.random(codes.shape[1]) < 0.5)
    for feature in schema.features:
        made[feature, half] = codes[feature, rng.permutation(half)]
    return made


def repeated_rows(codes: Codes, schema: Schema, rng: np.random.Generator) -> Codes:
    """200 of the rows, drawn again and again."""
    kept = rng.permutation(codes.shape[1])[:200]
    return np.ascontiguousarray(codes[:, rng.choice(kept, codes.shape[1])])


KINDS: dict[str, tuple[Spoil, str]] = {
    "random labels": (random_labels, "label_noise"),
    "flipped labels": (flipped_labels, "label_noise"),
    "biased labels": (biased_labels, "label_bias"),
    "shuffled features": (shuffled_features, "feature_noise"),
    "repeated rows": (repeated_rows, "repeated"),
}


def read(name: str) -> tuple[Schema, dict[str, Codes]]:
    """Schema and codes of every client of a task."""
    if name == "nearfull":
        return _nearfull()
    if name == "synthetic":
        schema, frames = synthetic.schema(), synthetic.states(seed=1, scale=0.1)
    else:
        source = census.SOURCES[name]
        loaded = acs.read(source.task, census.RECORDS / source.file, features="paper", year=source.year)
        schema, frames = loaded.schema, loaded.clients
    return schema, {client: schema.encode(frame) for client, frame in frames.items()}


def _nearfull() -> tuple[Schema, dict[str, Codes]]:
    """ACSIncome 2018 at natural sizes, with Puerto Rico; marital status and race are coarser there."""
    import polars as pl

    text = synthetic.schema().to_toml()
    frame = pl.read_parquet(census.RECORDS / "acs2018_income_nearfull.parquet")
    text = text.replace("columns.MAR]", "columns.MAR2]").replace("columns.RAC1P]", "columns.RAC5]")
    schema = Schema.parse(text)
    columns = []
    for column in schema.columns:
        if column.name in ("MAR2", "RAC5"):
            levels = tuple(sorted(frame[column.name].unique().to_list()))
            columns.append(type(column)(name=column.name, role=column.role, levels=levels))
        else:
            columns.append(column)
    schema = Schema(columns=tuple(columns), name="income_nearfull", where=schema.where)
    parts = frame.partition_by("ST", as_dict=True)
    return schema, {str(key[0]): schema.encode(part) for key, part in parts.items()}


def pool_of(made: Plan, exact: dict[str, npt.NDArray[np.int64]], seed: int) -> Pool:
    """Simulated releases of all clients."""
    rows = [
        np.asarray(
            add_simulated_noise(Tables(made.layout, cells), made.sigmas, np.random.default_rng([seed, i]))
        )
        for i, cells in enumerate(exact.values())
    ]
    return Pool(tuple(exact), made, np.stack(rows), simulated=True)


def auc(dirty: npt.NDArray[np.float64], clean: npt.NDArray[np.float64]) -> float:
    """Chance that a spoilt client scores above a clean one."""
    return float(np.mean(dirty[:, None] > clean) + 0.5 * np.mean(dirty[:, None] == clean))


def _entry(card: Card, kind: str) -> float:
    return max(
        abs(entry.z) if kind == "label_bias" else entry.z for entry in card.entries if entry.kind == kind
    )


def study(name: str, epsilon: float, seeds: range, *, clean: bool = False) -> None:
    """One task: a line for the clean pool and one for each kind."""
    schema, codes = read(name)
    made = plan(schema, epsilon)
    exact = {client: count(c, made.layout).exact for client, c in codes.items()}
    accused, extremes, pools = [], [], 0
    for seed in seeds:
        cards = quality(pool_of(made, exact, seed))
        pools += any(card.suspect for card in cards.values())
        accused += [f"{c.client}: {c.verdict}" for c in cards.values() if c.suspect]
        for client, card in cards.items():
            extremes += [
                (kind, _entry(card, kind), client) for kind in dict.fromkeys(e.kind for e in card.entries)
            ]
    print(
        f"{name}: {len(codes)} clients, epsilon {epsilon}; clean: {len(accused)} accused of {len(seeds) * len(codes)}"
    )
    for line in accused:
        print("   ", line)
    for kind in dict.fromkeys(kind for kind, _, _ in extremes):
        top = sorted((z, who) for k, z, who in extremes if k == kind)[-4:]
        power = np.mean([e.power for c in cards.values() for e in c.entries if e.kind == kind])
        print(
            f"    {kind}: largest z of honest clients",
            ", ".join(f"{who} {z:.1f}" for z, who in top),
            f"power {power:.2f}",
        )
    print(f"    pools with a suspect: {pools} of {len(seeds)}")
    for title, (spoil, kind) in () if clean else KINDS.items():
        spoilt = {c: count(spoil(rows, schema, np.random.default_rng([7, i])), made.layout).exact
                  for i, (c, rows) in enumerate(codes.items())}  # fmt: skip
        found: list[tuple[float, float, float, float]] = []
        for seed in seeds:
            chosen = np.random.default_rng([9, seed]).permutation(len(codes))[: round(SHARE * len(codes))]
            dirty = np.isin(np.arange(len(codes)), chosen)
            mixed = {c: spoilt[c] if dirty[i] else exact[c] for i, c in enumerate(codes)}
            cards = list(quality(pool_of(made, mixed, seed)).values())
            z = np.array([_entry(card, kind) for card in cards])
            suspect = np.array([card.suspect for card in cards])
            most = -np.log([min(entry.p for entry in card.entries) + 1e-300 for card in cards])
            scores = auc(z[dirty], z[~dirty]), auc(most[dirty], most[~dirty])
            found.append((*scores, suspect[dirty].mean(), suspect[~dirty].mean()))
        own, any_, caught, wrong = np.mean(found, axis=0)
        print(
            f"    {title}: AUC {own:.3f} (any entry {any_:.3f}), suspects {caught:.2f} of spoilt, {wrong:.3f} of clean"
        )


def main() -> None:
    """Print the tables of the tasks named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--clean", action="store_true", help="count false alarms only")
    asked = parser.parse_args()
    for name in asked.tasks:
        study(name, asked.epsilon, range(asked.first, asked.first + asked.seeds), clean=asked.clean)


if __name__ == "__main__":
    main()
