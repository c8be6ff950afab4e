"""Attacks: what a client gains by a doctored release, and how often the screen sees it.

    python experiments/attacks.py            # two census tasks, two ε, two sizes, several seeds and attackers
    python experiments/attacks.py --quick

Each attack replaces the release of one client (or of two or five that collude) and leaves all other noise as it
was. Measured: whether an attacker is chosen, how the true loss of the chosen federation moves (all members'
true records, the attackers' included), whether the rival (the best client of the honest choice) is still
chosen, and what the screen says (attacks.csv). Honest pools give the rates of false alarm (screen.csv), and how
much a choice among honest clients is due to one member (leaning.csv).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

sys.path.insert(0, str(Path(__file__).parent))

import census
from doctored import ATTACKS, Ints, Scene, World, choose, noised
from store import RESULTS, write_table

import fedwise as fw
from fedwise.data import acs, synthetic
from fedwise.estimation import estimate
from fedwise.estimation.estimates import Estimates
from fedwise.objective.pfl import loss
from fedwise.planning import plan
from fedwise.pool.pool import Pool
from fedwise.pool.screen import Screen, screen

TASKS = ("income2018", "coverage2024")
SIZES = (5, 10)
#: No client weighs more than this many median clients, where sizes are capped.
CAP = 4.0


def capped(estimates: Estimates) -> Estimates:
    """The same clients, none counted for more than `CAP` median ones."""
    most = CAP * float(np.median(estimates.totals))
    by = np.minimum(1.0, most / np.maximum(estimates.totals, 1.0))
    return replace(
        estimates,
        cells=estimates.cells * by[:, None],
        totals=estimates.totals * by,
        marginals=estimates.marginals * by[:, None],
    )


def lean(estimates: Estimates, members: Sequence[int], weights: fw.Weights) -> tuple[int, float]:
    """The member that moves the loss most when it leaves, and its part of what all of them move."""
    here = loss(estimates, members, weights)
    moves = {i: abs(loss(estimates, [j for j in members if j != i], weights) - here) for i in members}
    most = max(moves, key=lambda i: moves[i])
    return most, moves[most] / sum(moves.values())


def measure(scene: Scene, name: str, found: Screen, matrix: Ints, liars: set[int]) -> list[dict[str, object]]:
    """What one attack does to the choice of each size, with and without the screen."""
    world, weights = scene.world, scene.plan.weights
    at = {client: i for i, client in enumerate(world.clients)}
    flags = {at[flag.client] for flag in found.flags}
    alerts = {at[alert.client] for alert in found.alerts}
    estimates = (
        estimate(Pool(world.clients, scene.plan, matrix, simulated=True)) if liars else scene.estimates
    )
    kept = [i for i in range(len(world.clients)) if i not in flags]
    screened = (
        estimate(Pool([world.clients[i] for i in kept], scene.plan, matrix[kept])) if flags else estimates
    )
    rows = []
    for k in SIZES:
        before = choose(scene.estimates, k)
        raw = choose(estimates, k)
        after = tuple(kept[i] for i in choose(screened, k)) if flags else raw
        small = choose(capped(screened), k)
        limited = tuple(kept[i] for i in small) if flags else small
        pivot, part = lean(screened, choose(screened, k), weights)
        suspects = liars or {scene.me}

        def truly(members: Sequence[int]) -> float:
            return loss(world.truth, sorted(members), weights)

        def seats(members: Sequence[int], of: set[int] = suspects) -> float:
            return len(of & set(members)) / len(of)

        honest = sorted(set(after) - suspects)
        rows.append(
            {
                "attack": name, "k": k, "seed": scene.seed, "attackers": len(suspects),
                "flagged": len(suspects & flags) / len(suspects),
                "alerted": len(suspects & alerts) / len(suspects),
                "others_flagged": len(flags - suspects), "others_alerted": len(alerts - suspects),
                "chosen_honest": seats(before), "chosen_unscreened": seats(raw), "chosen": seats(after),
                "chosen_capped": seats(limited), "rival_honest": float(scene.rival in before),
                "rival": float(scene.rival in after), "loss_honest": truly(before),
                "loss_unscreened": truly(raw) - truly(before), "loss": truly(after) - truly(before),
                "loss_capped": truly(limited) - truly(before),
                "loss_of_honest_members": truly(honest) - truly(before) if honest else None,
                "lean": part,
                "leans_on_attacker": float(kept[pivot] in suspects),
            }
        )  # fmt: skip
    return rows


def study_attacks(worlds: dict[str, World], epsilons: Sequence[float], seeds: int) -> pl.DataFrame:
    """All attacks on all pools, a row for each pool, attack, size and seed."""
    lines: list[dict[str, object]] = []
    for task, world in worlds.items():
        for epsilon in epsilons:
            for seed in range(seeds):
                scene = Scene.of(world, epsilon, seed)
                for name, attack in ATTACKS.items():
                    doctored = attack(scene)
                    matrix = scene.honest.copy()
                    for who, rows in doctored.items():
                        matrix[who] = rows
                    found = screen(world.clients, matrix, scene.plan)
                    part = measure(scene, name, found, matrix, set(doctored))
                    lines += [{"data": task, "epsilon": epsilon, **row} for row in part]
                print(f"[attacks] {task} ε={epsilon} seed {seed}", flush=True)
    return pl.DataFrame(lines, infer_schema_length=None)


def summary(lines: pl.DataFrame) -> pl.DataFrame:
    """A row for each attack and task: rates over ε, k and seeds."""
    number = [c for c in lines.columns if c not in ("data", "epsilon", "attack", "k", "seed")]
    keys = ["data", "attack", "epsilon", "k"]
    means = lines.group_by(keys, maintain_order=True).agg(
        pl.len().alias("runs"), *(pl.col(c).mean() for c in number)
    )
    return means.sort(pl.col("data"), pl.col("epsilon"), pl.col("k"), maintain_order=True)


def honest_worlds(records: Path) -> dict[str, World]:
    """Pools the screen was set on, and two with Puerto Rico that it was not."""
    found = {}
    for name, source in census.SOURCES.items():
        if census.available(name, records):
            frames, schema, _ = census._read(source, records, None)
            found[name] = World.of(frames, schema)
    for name, task, file in (
        ("income2018, 51", "income", "acs2018_income_nearfull.parquet"),
        ("employment2014-18, 51", "employment", "acs2014_2018_employment.parquet"),
    ):
        if (records / file).is_file():
            loaded = acs.read(task, records / file, features="paper", year=2018)
            found[name] = World.of(loaded.clients, loaded.schema)
    tiny = synthetic.states(seed=2, scale=0.01)
    found["synthetic, tiny"] = World.of(tiny, synthetic.schema())
    return found


def study_alarms(worlds: dict[str, World], epsilons: Sequence[float], seeds: int) -> pl.DataFrame:
    """Flags and alerts of honest pools: every one of them is false."""
    lines = []
    for name, world in worlds.items():
        for epsilon in epsilons:
            made = plan(world.schema, epsilon)
            rounds = seeds if made.private else 1
            flags, alerts, who = 0, 0, set()
            for seed in range(rounds):
                rng = np.random.default_rng([seed, 9])
                matrix = (
                    np.stack([noised(made, row, rng) for row in world.exact]) if made.private else world.exact
                )
                found = screen(world.clients, matrix, made)
                flags += len(found.flags)
                alerts += len({alert.client for alert in found.alerts})
                who |= {f"{alert.client} ({alert.kind})" for alert in found.alerts}
            lines.append(
                {
                    "data": name, "epsilon": str(epsilon), "releases": rounds * len(world.clients),
                    "flagged": flags, "alerted": alerts, "who": ", ".join(sorted(who)),
                }
            )  # fmt: skip
        print(f"[attacks] honest {name}", flush=True)
    return pl.DataFrame(lines)


def study_leaning(worlds: dict[str, World], epsilons: Sequence[float], seeds: int) -> pl.DataFrame:
    """How much of a choice among honest clients is due to one member."""
    lines = []
    for name, world in worlds.items():
        for epsilon in epsilons:
            made = plan(world.schema, epsilon)
            for seed in range(seeds):
                rng = np.random.default_rng([seed, 77])
                matrix = np.stack([noised(made, row, rng) for row in world.exact])
                estimates = estimate(Pool(world.clients, made, matrix, simulated=True))
                for k in (3, 5, 10, 20):
                    who, part = lean(estimates, choose(estimates, k), made.weights)
                    lines.append({"data": name, "k": k, "lean": part, "on": world.clients[who]})
        print(f"[attacks] leaning {name}", flush=True)
    found = pl.DataFrame(lines).group_by("data", "k", maintain_order=True)
    return found.agg(
        pl.len().alias("choices"), pl.col("lean").median().alias("median"), pl.col("lean").max().alias("most"),
        pl.col("on").sort_by("lean").last().alias("on"),
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--data", type=Path, default=census.RECORDS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    worlds = honest_worlds(options.data)
    alarms = study_alarms(worlds, (0.1, 0.3, 1.0, 5.0, float("inf")), 2 if options.quick else 10)
    write_table(alarms, options.out / "screen.csv")
    pools = {name: world for name, world in worlds.items() if name in census.SOURCES}
    write_table(study_leaning(pools, (0.3, 1.0, 5.0), 1 if options.quick else 3), options.out / "leaning.csv")
    tasks = {name: worlds[name] for name in TASKS if name in worlds} or {"synthetic": worlds["synthetic"]}
    epsilons = (1.0,) if options.quick else (0.3, 1.0)
    lines = study_attacks(tasks, epsilons, 1 if options.quick else 6)
    write_table(summary(lines), options.out / "attacks.csv")


if __name__ == "__main__":
    main()
