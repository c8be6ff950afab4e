"""Benchmark of rehearsals: what training on doubles says of federations, beside what training on their rows gives.

    python benchmarks/rehearsal.py [--pools income2018 ...] [--sizes 5 10] [--eps inf 1 0.3 0.1] [--number 40]
                                   [--stages 3] [--kinds forecast rehearsal joint] [--out DIR] [--quick] [--tables]

Random federations are trained twice on rows (two seeds: the ceiling is what one says of the other), rehearsed from
releases with simulated noise, and forecast: *rehearsal* and *forecast* from a plan of pairs, *joint* from one that asks
for each feature with groups and classes at once, at the same ε. Clients have at most 20,000 rows; tables count the rows
that train; models are tested on held-out rows of all clients. Parts are written as they finish, so a run that was
stopped goes on where it was, and several runs may fill one folder. `--tables` only prints the tables of what there is
and writes docs/results/rehearsal.md.

**What was chosen on what.** Doubles, rehearsals and forecasts were worked on with the pools of `CALIBRATED` and, for
the numbers within bins, travel2024; the model gap behind the intervals is calibrated on the former alone. The other
pools were run for the report.
Needs the census records in ../shared/data.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pathlib import Path

import numpy as np
import rehearsal_tables
from rehearsal_pools import AREAS, CALIBRATED, DATA, STATES, Real, Trained, federations, load, settings

from fedwise.estimation import estimate
from fedwise.forecasting import ALL, Forecaster, Settings
from fedwise.pool.pool import Pool
from fedwise.rehearsal.workflow import rehearse

POOLS = (*STATES, *AREAS)
#: What is compared with training.
KINDS = ("forecast", "rehearsal", "joint")
PAGE = Path(__file__).parents[1] / "docs" / "results" / "rehearsal.md"


def part(folder: Path, name: str, epsilon: float, noise: int, size: int, kind: str) -> Path:
    """File of one part."""
    return folder / f"{name}.{epsilon:g}.{noise}.{size}.{kind}.json"


def run_rehearsal(real: Real, pool: Pool, path: Path, members: list[tuple[str, ...]], stages: int) -> None:
    """Rehearse every federation."""
    found = rehearse(pool, members, settings(real.name), random=0, everyone=False, stages=stages)
    found.save(path)


def run_forecast(pool: Pool, path: Path, members: list[tuple[str, ...]]) -> None:
    """Forecast every federation."""
    made = Forecaster(estimate(pool), settings=Settings.for_model("mlp"))
    values = made.values(np.stack([made.rows[made.positions(m)].sum(axis=0) for m in members]), ALL)
    lines = [
        {"clients": m, "metrics": dict(zip(ALL, row.tolist(), strict=True))}
        for m, row in zip(members, values, strict=True)
    ]
    path.write_text(json.dumps(lines))


def run(args: argparse.Namespace) -> None:
    """Everything that is not there yet, one size and epsilon after the other over all pools."""
    args.out.mkdir(parents=True, exist_ok=True)
    pools: dict[str, Real] = {}
    for size in args.sizes:
        for epsilon in args.eps:
            for name in args.pools:
                places = {kind: part(args.out, name, epsilon, args.noise, size, kind) for kind in args.kinds}
                if all(path.exists() for path in places.values()):
                    continue
                real = pools.setdefault(name, pools.get(name) or load(name))
                (args.out / f"{name}.rates.json").write_text(json.dumps(real.label_rates))
                members = federations(real.clients, size, args.number)
                trained, began = Trained.of(real, args.out), time.process_time()
                for seed in (0, 1):
                    for some in members:
                        trained(some, seed)
                say(f"{name} k={size}: trained, {time.process_time() - began:.0f} s")
                pool, began = real.pool(epsilon, args.noise), time.process_time()
                for kind, path in places.items():
                    if path.exists():
                        continue
                    if kind == "forecast":
                        run_forecast(pool, path, members)
                    else:
                        asked = real.pool(epsilon, args.noise, joint=True) if kind == "joint" else pool
                        run_rehearsal(real, asked, path, members, args.stages)
                say(
                    f"{name} k={size} ε={epsilon:g}: rehearsed and forecast, {time.process_time() - began:.0f} s"
                )


def say(text: str) -> None:
    """Progress, on standard error."""
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Run, then print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--pools", nargs="+", choices=POOLS, default=list(POOLS))
    parser.add_argument("--sizes", nargs="+", type=int, default=[5, 10])
    parser.add_argument("--eps", nargs="+", type=float, default=[1.0, math.inf, 0.3, 0.1])
    parser.add_argument("--number", type=int, default=40, help="random federations of each size")
    parser.add_argument("--stages", type=int, default=3)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--noise", type=int, default=0, help="seed of the releases' noise")
    parser.add_argument("--out", type=Path, default=Path("rehearsal-parts"))
    parser.add_argument(
        "--quick", action="store_true", help="two pools, one size, one epsilon, 12 federations"
    )
    parser.add_argument("--tables", action="store_true", help="only the tables of what there is")
    args = parser.parse_args()
    if not DATA.exists():
        say(f"census records are not at {DATA.name}; nothing to measure")
        return 0
    if args.quick:
        args.pools, args.sizes, args.eps, args.number = ["income2018", "poverty_ny"], [5], [1.0], 12
    if not args.tables:
        run(args)
    rows = rehearsal_tables.read(args.out)
    print(rehearsal_tables.text(rows))
    print("gaps:", {m: round(g, 4) for m, g in rehearsal_tables.calibrate(rows, CALIBRATED).items()})
    if args.tables:
        PAGE.write_text(rehearsal_tables.page(rows, CALIBRATED, tuple(AREAS)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
