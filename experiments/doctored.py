"""Doctored: releases a hostile client could send, and the honest pool it sends them into."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

sys.path.insert(0, str(Path(__file__).parent))

import census

from fedwise.estimation import estimate
from fedwise.estimation.estimates import Estimates
from fedwise.objective.pfl import loss
from fedwise.owner.noise import add_simulated_noise
from fedwise.owner.tables import Tables, count
from fedwise.planning import Plan, plan
from fedwise.pool.pool import Pool
from fedwise.schema.schema import Role, Schema
from fedwise.search import select

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int16]
Attack = Callable[["Scene"], dict[int, Ints]]


@dataclass(frozen=True, eq=False)
class World:
    """The records of one task: codes and exact tables of every client."""

    schema: Schema
    clients: tuple[str, ...]
    codes: tuple[Codes, ...]
    exact: Ints

    @classmethod
    def of(cls, frames: dict[str, pl.DataFrame], schema: Schema) -> World:
        layout = plan(schema, float("inf")).layout
        codes = tuple(schema.encode(frame) for frame in frames.values())
        return cls(schema, tuple(frames), codes, np.stack([count(c, layout).exact for c in codes]))

    @cached_property
    def truth(self) -> Estimates:
        """The exact tables as estimates without noise."""
        return census.Tabled(self.schema, self.clients, self.exact).truth()


@dataclass(frozen=True, eq=False)
class Scene:
    """One honest pool, the attackers in it, and the rival: the best member of the honest choice."""

    world: World
    plan: Plan
    honest: Ints
    estimates: Estimates
    attackers: tuple[int, ...]
    rival: int
    seed: int

    @classmethod
    def of(cls, world: World, epsilon: float, seed: int) -> Scene:
        made = plan(world.schema, epsilon)
        rng = np.random.default_rng([seed, 1])
        honest = np.stack([noised(made, row, rng) for row in world.exact])
        estimates = estimate(Pool(world.clients, made, honest, simulated=True))
        members = choose(estimates, 5)
        rival = min(members, key=lambda i: loss(estimates, [i], made.weights))
        others = [i for i in range(len(world.clients)) if i != rival]
        attackers = np.random.default_rng([seed, 2]).permutation(others)[:5]
        return cls(world, made, honest, estimates, tuple(int(i) for i in attackers), rival, seed)

    @property
    def me(self) -> int:
        """The attacker, where there is one."""
        return self.attackers[0]

    def rng(self) -> np.random.Generator:
        """Randomness of the attack itself: the same for every attack of this scene."""
        return np.random.default_rng([self.seed, 3])

    def role(self, role: Role) -> list[int]:
        """Positions of the columns with this role."""
        return [i for i, column in enumerate(self.world.schema.columns) if column.role == role]


def noised(made: Plan, exact: Ints, rng: np.random.Generator, factor: float = 1.0) -> Ints:
    """Counts with the plan's noise times `factor`."""
    return np.asarray(add_simulated_noise(Tables(made.layout, exact), made.sigmas * factor, rng))


def choose(estimates: Estimates, k: int, exclude: Sequence[int] = ()) -> tuple[int, ...]:
    """Positions of the chosen clients, by exchange from the greedy start."""
    names = [estimates.clients[i] for i in exclude]
    found = select(
        estimates, k, method="greedy-exchange", exclude=names, alternatives=0, evidence="none", threads=1
    )
    at = {name: i for i, name in enumerate(estimates.clients)}
    return tuple(at[name] for name in found.clients)


# Made-up rows ---------------------------------------------------------------------------------------------------


def invented(scene: Scene, who: int, rng: np.random.Generator, share: float = 1.0) -> Codes:
    """Perfect rows in place of a `share` of the client's: features tell the label apart, S tells nothing."""
    codes = scene.world.codes[who].copy()
    n = codes.shape[1]
    made = rng.random(n) < share
    label = rng.integers(0, 2, n)
    rows = codes.copy()
    for target in scene.role(Role.TARGET):
        rows[target] = label
    for s in scene.role(Role.SENSITIVE):
        rows[s] = rng.integers(0, scene.world.schema.sizes[s], n)
    for feature in scene.role(Role.FEATURE):
        size = scene.world.schema.sizes[feature]
        half = max(1, size // 2)
        rows[feature] = np.where(
            label == 0, rng.integers(0, half, n), rng.integers(min(half, size - 1), size, n)
        )
    codes[:, made] = rows[:, made]
    return codes


def polished(scene: Scene, who: int, rng: np.random.Generator) -> Codes:
    """The client's own rows with S shuffled and the label set to what the features say of it."""
    codes = scene.world.codes[who].copy()
    n = codes.shape[1]
    (target,) = scene.role(Role.TARGET)
    for s in scene.role(Role.SENSITIVE):
        codes[s] = rng.permutation(codes[s])
    label = codes[target].astype(np.float64)
    score = np.zeros(n)
    for feature in scene.role(Role.FEATURE):
        size = scene.world.schema.sizes[feature]
        seen = np.bincount(codes[feature], minlength=size) + 1.0
        ones = np.bincount(codes[feature], weights=label, minlength=size) + 0.5
        score += np.log(ones / (seen - ones))[codes[feature]]
    codes[target] = score > np.quantile(score, 1 - label.mean())
    return codes


def flipped(scene: Scene, who: int) -> Codes:
    """The client's own rows with the label turned round."""
    codes = scene.world.codes[who].copy()
    (target,) = scene.role(Role.TARGET)
    codes[target] = 1 - codes[target]
    return codes


def counted(scene: Scene, codes: Codes, times: int = 1) -> Ints:
    """Exact tables of made-up rows, each row `times` over."""
    return count(codes, scene.plan.layout).exact * times


# Attacks: the doctored releases by client position ----------------------------------------------------------------


def alone(make: Callable[[Scene, np.random.Generator], Ints]) -> Callable[[Scene], dict[int, Ints]]:
    """An attack by one client."""
    return lambda scene: {scene.me: make(scene, scene.rng())}


def exact_tables(make: Callable[[Scene, np.random.Generator], Ints]) -> Callable[[Scene], dict[int, Ints]]:
    """One client sends honest noise on tables of its choice."""
    return alone(lambda scene, rng: noised(scene.plan, make(scene, rng), rng))


def together(size: int, share: float) -> Callable[[Scene], dict[int, Ints]]:
    """Several clients invent rows, each with noise of its own."""

    def attack(scene: Scene) -> dict[int, Ints]:
        rng = scene.rng()
        return {
            who: noised(scene.plan, counted(scene, invented(scene, who, rng, share)), rng)
            for who in scene.attackers[:size]
        }

    return attack


def one_table(scene: Scene, rng: np.random.Generator) -> Ints:
    """Three times the counts in the strongest table of feature and label only."""
    layout, (target,) = scene.plan.layout, scene.role(Role.TARGET)
    rows = scene.honest[scene.me].copy()
    signal = [j for j, pair in enumerate(layout.pairs) if target in pair]
    best = max(signal, key=lambda j: scene.world.exact[scene.me][layout.slice(j)].max())
    rows[layout.slice(best)] *= 3
    return rows


def garbage(scene: Scene, rng: np.random.Generator) -> Ints:
    """A twentieth of the cells hold something, at random."""
    rows = np.zeros(scene.plan.layout.cells, dtype=np.int64)
    hit = rng.random(rows.size) < 0.05
    rows[hit] = rng.integers(0, 2000, int(hit.sum()))
    return noised(scene.plan, rows, rng)


def partial_copy(scale: float, noise: float) -> Callable[[Scene], dict[int, Ints]]:
    """`scale` times the rival's release, with fresh noise of `noise` times the plan's."""

    def make(scene: Scene, rng: np.random.Generator) -> Ints:
        base = np.rint(scale * scene.honest[scene.rival]).astype(np.int64)
        return noised(scene.plan, base, rng, noise) if noise else base

    return alone(make)


def own(scene: Scene) -> Ints:
    return scene.world.exact[scene.me]


def mine(scene: Scene) -> Codes:
    return scene.world.codes[scene.me]


ATTACKS: dict[str, Callable[[Scene], dict[int, Ints]]] = {
    "none": lambda scene: {},
    "sizes ×2": exact_tables(lambda s, r: own(s) * 2),
    "sizes ×10": exact_tables(lambda s, r: own(s) * 10),
    "sizes ×1000": exact_tables(lambda s, r: own(s) * 1000),
    "noisy counts ×2": alone(lambda s, r: s.honest[s.me] * 2),
    "noisy counts ×10": alone(lambda s, r: s.honest[s.me] * 10),
    "one table ×3": alone(one_table),
    "copy of the rival": partial_copy(1.0, 0.0),
    "copy + half noise": partial_copy(1.0, 0.5),
    "copy + full noise": partial_copy(1.0, 1.0),
    "half copy + noise to fit": partial_copy(0.5, 0.75**0.5),
    "denoised copy + noise": exact_tables(lambda s, r: np.rint(s.estimates.cells[s.rival]).astype(np.int64)),
    "rival's rows": exact_tables(lambda s, r: s.world.exact[s.rival]),
    "minus the rival": alone(lambda s, r: -s.honest[s.rival]),
    "rival, label flipped": exact_tables(lambda s, r: counted(s, flipped(s, s.rival))),
    "no noise": alone(lambda s, r: own(s)),
    "noise ×10": alone(lambda s, r: noised(s.plan, own(s), r, 10.0)),
    "all zero": alone(lambda s, r: np.zeros_like(own(s))),
    "only noise": exact_tables(lambda s, r: np.zeros_like(own(s))),
    "a fiftieth of its rows": exact_tables(lambda s, r: counted(s, mine(s)[:, ::50])),
    "sparse garbage": alone(garbage),
    "label flipped": exact_tables(lambda s, r: counted(s, flipped(s, s.me))),
    "invented rows": exact_tables(lambda s, r: counted(s, invented(s, s.me, r))),
    "invented rows ×100": exact_tables(lambda s, r: counted(s, invented(s, s.me, r), 100)),
    "30% invented": exact_tables(lambda s, r: counted(s, invented(s, s.me, r, 0.3))),
    "10% invented": exact_tables(lambda s, r: counted(s, invented(s, s.me, r, 0.1))),
    "polished rows": exact_tables(lambda s, r: counted(s, polished(s, s.me, r))),
    "polished rows ×10": exact_tables(lambda s, r: counted(s, polished(s, s.me, r), 10)),
    "polished rows ×100": exact_tables(lambda s, r: counted(s, polished(s, s.me, r), 100)),
    "2 collude, invented": together(2, 1.0),
    "5 collude, invented": together(5, 1.0),
    "5 collude, 10% invented": together(5, 0.1),
}  # fmt: skip
