"""Cold start: time of `fedwise select` and `fedwise release` with an empty compilation cache, and warm.

    python benchmarks/cold.py [--old CHECKOUT]

Runs the commands in processes of their own on 50 simulated releases of the synthetic states (the demo's), k = 10.
With --old the same is measured for another checkout of fedwise, the two in turns: only ratios of one run count on a
busy machine. `select` is compared without its quick rehearsal, which version 0.1.0 does not have; the command as a
person runs it, rehearsal included, is a row of its own.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent.parent
MAKE = """
import sys
from pathlib import Path
import fedwise as fw
from fedwise.data import synthetic
folder = Path(sys.argv[1])
plan = fw.plan(synthetic.schema(), epsilon=1.0)
plan.save(folder / "plan.json")
for name, frame in synthetic.states(seed=0, scale=0.2).items():
    fw.release(plan, frame, client=name, simulated=True, seed=0).save(folder / "releases" / f"{name}.release.json")
    if name == "CA":
        frame.write_parquet(folder / "CA.parquet")
"""


class Took(NamedTuple):
    """Seconds of one command: of the processor, and by the clock."""

    processor: float
    clock: float


def took(tree: Path, folder: Path, cache: Path, words: tuple[str, ...]) -> Took:
    """Time of one command of the fedwise in `tree`."""
    for kept in folder.glob("CA.parquet.ledger.db*"):
        if kept.is_dir():
            shutil.rmtree(kept)
        else:
            kept.unlink()
    environment = {
        **os.environ,
        "PYTHONPATH": str(tree / "src"),
        "NUMBA_CACHE_DIR": str(cache),
        "OMP_NUM_THREADS": "1",
    }
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "fedwise.cli.main", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        check=False,
    )
    clock, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(done.stderr.decode())
    return Took(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, clock)


def _rehearses(tree: Path) -> bool:
    return any(
        "--no-rehearsal" in path.read_text() for path in (tree / "src" / "fedwise" / "cli").glob("*.py")
    )


def commands(tree: Path) -> dict[str, tuple[str, ...]]:
    """What is measured in a checkout."""
    select = ("select", "releases", "-k", "10", "--json")
    found = {
        "select": (*select, "--no-rehearsal") if _rehearses(tree) else select,
        "release": ("release", "plan.json", "CA.parquet", "-c", "CA", "-o", "CA.json", "--force"),
    }
    if _rehearses(tree):
        found["select and rehearsal"] = select
    return found


def measure(trees: list[Path], folder: Path, repeats: int) -> dict[str, list[Took | None]]:
    """Times of each command in each checkout: one cold run, then the least of some warm ones, in turns."""
    found: dict[str, list[Took | None]] = {}
    asked = [commands(tree) for tree in trees]
    for name in asked[-1]:
        with tempfile.TemporaryDirectory() as caches:
            runs: list[list[Took]] = [[] for _ in trees]
            for _ in range(1 + repeats):
                for number, tree in enumerate(trees):
                    if name in asked[number]:
                        cache = Path(caches) / str(number)
                        runs[number].append(took(tree, folder, cache, asked[number][name]))
        found[f"{name}, cold"] = [one[0] if one else None for one in runs]
        found[f"{name}, warm"] = [
            Took(min(t.processor for t in one[1:]), min(t.clock for t in one[1:])) if one else None
            for one in runs
        ]
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--old", type=Path, help="Another checkout to compare with.")
    arguments.add_argument("--repeats", type=int, default=5, help="Warm runs, of which the least counts.")
    given = arguments.parse_args()
    trees = [*([given.old.resolve()] if given.old else []), HERE]
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        subprocess.run(
            [sys.executable, "-c", MAKE, str(folder)],
            env={**os.environ, "PYTHONPATH": str(trees[0] / "src")},
            check=True,
        )
        found = measure(trees, folder, given.repeats)
    for which in Took._fields:
        print(f"{'seconds, ' + which:28} {'old':>7} {'new':>7} {'ratio':>6}")
        for name, (*before, new) in found.items():
            old, now = (before[0] if before else None), getattr(new, which)
            past = getattr(old, which) if old else None
            first = f"{past:7.2f} {now:7.2f} {now / past:6.2f}" if past else f"{'':7} {now:7.2f}"
            print(f"{name:28} {first}")


if __name__ == "__main__":
    main()
