"""Seconds of one secure aggregation: 5 clients and 10,000 parameters, in this process, without training.

    python benchmarks/secagg.py                         this version
    python benchmarks/secagg.py --old ../old/src        and another one, in turns, with the ratio of the two

Each version runs in processes of its own, in turns, so that a busy machine slows both alike. A round is the whole
protocol: keys, shares, masked vectors, unmasking; with ``--lost 1`` one client leaves before its vector is sent,
and the server rebuilds its key.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

SOURCE = Path(__file__).parents[1] / "src"


def measure(clients: int, parameters: int, rounds: int, lost: int) -> list[float]:
    """Processor seconds of each round in this process, whichever fedwise it finds; one round more warms up."""
    from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    from fedwise.flower import InProcessGrid, SecAgg, guard_mod, secagg_mod

    logging.disable(logging.CRITICAL)
    update = np.random.default_rng(0).normal(size=parameters).astype(np.float32)
    app = ClientApp(mods=[guard_mod, secagg_mod])

    @app.train()
    def train(message, context):  # type: ignore[no-untyped-def]
        if context.node_id > 1000 + clients - lost:
            raise RuntimeError("lost")
        arrays = ArrayRecord({"w": Array(update)})
        return Message(
            RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 500})}), reply_to=message
        )

    grid = SecAgg(InProcessGrid(app, clients), max_weight=1000)
    zeros = RecordDict({"arrays": ArrayRecord({"w": Array(update * 0)}), "config": ConfigRecord({})})
    seconds = []
    for _ in range(rounds + 1):
        messages = [Message(zeros, 1001 + i, "train") for i in range(clients)]
        began = time.process_time()
        (reply,) = grid.send_and_receive(messages)
        seconds.append(time.process_time() - began)
        found = next(iter(reply.content.array_records.values()))["w"].numpy()
        if np.abs(found - update).max() > 1e-4:
            raise SystemExit("the aggregate is wrong")
    return seconds[1:]


def run(source: Path, options: list[str]) -> list[float]:
    """`measure` in a fresh process that imports fedwise from `source`."""
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, __file__, "--worker", *options],
        env={**os.environ, **quiet, "PYTHONPATH": str(source.resolve())},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return list(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--old", type=Path, help="the src folder of another version")
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--parameters", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--lost", type=int, default=0)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.worker:
        print(json.dumps(measure(asked.clients, asked.parameters, asked.rounds, asked.lost)))
        return
    names = ("clients", "parameters", "rounds", "lost")
    options = [part for name in names for part in (f"--{name}", str(getattr(asked, name)))]
    sources = {"this version": SOURCE} | ({"other version": asked.old} if asked.old else {})
    found: dict[str, list[float]] = {name: [] for name in sources}
    for _ in range(asked.turns):
        for name, source in sources.items():
            found[name] += run(source, options)
    print(
        f"{asked.clients} clients, {asked.parameters} parameters, {asked.lost} lost; processor seconds of a round"
    )
    for name, seconds in found.items():
        low, middle, high = min(seconds), statistics.median(seconds), max(seconds)
        print(f"{name:14}  median {middle:.4f}  ({low:.4f} to {high:.4f}, {len(seconds)} rounds)")
    if asked.old:
        ratio = statistics.median(found["this version"]) / statistics.median(found["other version"])
        print(f"ratio           {ratio:.2f}")


if __name__ == "__main__":
    main()
