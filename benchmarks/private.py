"""Seconds of one DP-SGD update: this version against an older checkout, on the same rows in one run.

    python benchmarks/private.py --old ../old            ratios by model and number of rows
    python benchmarks/private.py                         this version alone, with the cost of the noise

Both versions run in processes of their own and take turns, so that a busy machine is busy for both. The
figure is the median of the processor's seconds of an update of one epoch (Adam, batches of 32). The second
table is the time of a draw of noise: a continuous Gaussian in double precision, the same rounded to the grid
exactly (what training uses), and OpenDP's discrete Gaussian.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any

import numpy as np

#: The last is the mlp as a module of the user's own, whose row gradients are Opacus'.
MODELS, SIZES = ("logistic", "mlp", "module"), (4_000, 16_000)
LIMIT = 1.3


def write_rows(folder: Path) -> None:
    """Rows of a synthetic state, encoded, for both versions to read."""
    from fedwise.data import synthetic
    from fedwise.training.encoding import Encoder

    rows = Encoder(synthetic.schema()).encode(synthetic.state("CA", rows=max(SIZES)))
    for size in SIZES:
        part = rows.take(np.arange(size))
        np.savez(
            folder / f"{size}.npz",
            width=part.width,
            hot=part.hot,
            dense=part.dense,
            dense_at=part.dense_at,
            y=part.y,
            groups=part.groups,
        )


def serve(folder: Path) -> None:
    """Answer ``model rows`` on standard input with the processor's seconds of one update."""
    parts: Any
    try:
        from fedwise.training import encoding, local, model, private
    except ImportError:  # the package's name before the rooms
        from fedwise.train import encoding, local, model, private  # type: ignore[no-redef]
    parts = encoding, local, model, private
    encoding, local, model, private = parts
    known: dict[str, Any] = {}
    for line in sys.stdin:
        name, size = line.split()
        if size not in known:
            with np.load(folder / f"{size}.npz") as data:
                known[size] = encoding.Rows(int(data["width"]), *(data[k] for k in data.files[1:]))
        rows = known[size]
        if name == "module":
            network = model.Model(
                rows.width, factory=lambda inputs: model.Model.named("mlp", inputs).module()
            )
        else:
            network = model.Model.named(name, rows.width)
        instruction = local.Instruction(local.LocalSettings(batch=32))
        vector = network.initial(0)
        began = time.process_time()
        private.private_update(
            network, vector, rows, instruction=instruction, client="A", round=1, noise_multiplier=1.0
        )
        print(time.process_time() - began, flush=True)


class Worker:
    """One version in a process of its own."""

    def __init__(self, source: Path, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"},
        )

    def seconds(self, name: str, size: int) -> float:
        """Processor's seconds of one update."""
        asked: IO[str] | None = self.process.stdin
        told: IO[str] | None = self.process.stdout
        assert asked is not None
        assert told is not None
        asked.write(f"{name} {size}\n")
        asked.flush()
        return float(told.readline())

    def close(self) -> None:
        """End the process."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait(timeout=30)


def updates(old: Path | None, repeats: int) -> bool:
    """Print the seconds of both versions; whether every ratio is within the limit."""
    good = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_rows(folder)
        here = Path(__file__).parents[1] / "src"
        workers = [Worker(here, folder)] + ([Worker(old / "src", folder)] if old else [])
        print(f"{'model':<10}{'rows':>8}{'new s':>10}{'old s':>10}{'new / old':>12}")
        for model in MODELS:
            for size in SIZES:
                taken = np.array(
                    [[worker.seconds(model, size) for worker in workers] for _ in range(repeats + 1)]
                )
                new, *rest = np.median(taken[1:], axis=0)  # the first compiles and loads
                ratio = new / rest[0] if rest else float("nan")
                good &= not ratio > LIMIT
                before = f"{rest[0]:>10.3f}{ratio:>12.3f}" if rest else ""
                print(f"{model:<10}{size:>8}{new:>10.3f}{before}", flush=True)
        for worker in workers:
            worker.close()
    return good


def draws(count: int = 4_000, repeats: int = 30) -> None:
    """Print nanoseconds of one draw of noise by three samplers."""
    import opendp.prelude as dp

    from fedwise.privacy.gaussian import box_muller, rounded_gaussian
    from fedwise.training.entropy import Stream
    from fedwise.training.row_gradients import UNIT

    stream = Stream.system()
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    measure = space >> dp.m.then_gaussian(scale=float(UNIT))
    zeros = [0] * count
    for label, draw in (
        (
            "continuous Gaussian in double precision",
            lambda: box_muller(stream.words(count // 2), stream.words(count // 2)),
        ),
        ("Gaussian rounded to the grid, exact", lambda: rounded_gaussian(UNIT, count, stream.words)),
        ("OpenDP's discrete Gaussian", lambda: measure(zeros)),
    ):
        draw()
        times = []
        for _ in range(repeats):
            began = time.process_time()
            draw()
            times.append(time.process_time() - began)
        print(f"{label:<44}{float(np.median(times)) / count * 1e9:>10.0f} ns a draw", flush=True)


def main() -> int:
    """Run what was asked; 1 if an update costs more than the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--old", type=Path, help="checkout of an older version to compare with")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        serve(options.serve)
        return 0
    good = updates(options.old, options.repeats)
    draws()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
