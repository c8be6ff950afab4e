"""Cold start: processor time of `fedwise select` and `fedwise release` with an empty compilation cache, and warm.

    python benchmarks/cold.py [--old CHECKOUT]

Runs the commands in processes of their own on 50 simulated releases of the synthetic states (the demo's), k = 10.
With --old the same is measured for another checkout of fedwise in the same run, and the ratios are printed: only
ratios of one run count on a busy machine.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

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


def seconds(tree: Path, folder: Path, cache: Path, *words: str) -> float:
    """Processor time of one command of the fedwise in `tree`."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(tree / "src"),
        "NUMBA_CACHE_DIR": str(cache),
        "OMP_NUM_THREADS": "1",
    }
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "fedwise.cli.main", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(done.stderr.decode())
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _same_work(tree: Path) -> tuple[str, ...]:
    options = "".join(path.read_text() for path in (tree / "src" / "fedwise" / "cli").glob("*.py"))
    return ("--no-rehearsal",) if "--no-rehearsal" in options else ()


def measure(tree: Path, folder: Path, repeats: int) -> dict[str, float]:
    """Seconds of each command, the least of some warm runs and one cold run."""
    found = {}
    commands = {
        # Without the quick rehearsal that version 0.1.0 did not have.
        "select": ("select", "releases", "-k", "10", "--json", *_same_work(tree)),
        "release": ("release", "plan.json", "CA.parquet", "-c", "CA", "-o", "CA.json", "--force"),
    }
    for name, words in commands.items():
        with tempfile.TemporaryDirectory() as cache:
            for old in folder.glob("CA.parquet.ledger.db*"):
                subprocess.run(["rm", "-rf", str(old)], check=True)
            found[f"{name}, cold"] = seconds(tree, folder, Path(cache), *words)
            warm = []
            for _ in range(repeats):
                for old in folder.glob("CA.parquet.ledger.db*"):
                    subprocess.run(["rm", "-rf", str(old)], check=True)
                warm.append(seconds(tree, folder, Path(cache), *words))
            found[f"{name}, warm"] = min(warm)
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--old", type=Path, help="Another checkout to compare with.")
    arguments.add_argument("--repeats", type=int, default=2, help="Warm runs, of which the least counts.")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        maker = given.old or HERE
        subprocess.run(
            [sys.executable, "-c", MAKE, str(folder)],
            env={**os.environ, "PYTHONPATH": str(maker / "src")},
            check=True,
        )
        old = measure(given.old.resolve(), folder, given.repeats) if given.old else {}
        new = measure(HERE, folder, given.repeats)
    print(f"{'processor seconds':18} {'old':>7} {'new':>7} {'ratio':>6}")
    for name, value in new.items():
        before = f"{old[name]:7.2f} {value:7.2f} {value / old[name]:6.2f}" if old else f"{'':7} {value:7.2f}"
        print(f"{name:18} {before}")


if __name__ == "__main__":
    main()
