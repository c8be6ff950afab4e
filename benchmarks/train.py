"""Seconds of federated training: fedwise's engine, a plain loop of DataLoaders, Flower's Ray simulation.

    python benchmarks/train.py             all three (Flower needs the 'flower' extra)
    python benchmarks/train.py --quick     fewer rounds, without Flower

The setting is the paper's: k = 5 clients of ACSIncome 2018 (20,000 rows each, 16,000 for training), a 32-32-32
network, Adam at 1e-4, batches of 32, one local epoch. The three start from the same parameters and see the rows
in the same order, so their results must agree; the largest difference in the test loss is printed. Without
the census files the embedded synthetic states stand in, at the same sizes.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from pathlib import Path

import numpy as np

from fedwise.data import acs, synthetic
from fedwise.training.federation import Prepared, prepare
from fedwise.training.local import LocalSettings, log_losses, orders, predict
from fedwise.training.model import Model, Vector
from fedwise.training.simulate import Config, simulate

CENSUS = Path(__file__).parents[2] / "shared" / "data" / "acs2018_income.parquet"
STATES = ("CA", "FL", "NY", "OH", "TX")


class Clock:
    """Seconds on the wall and of this process's processor: the second tells on a busy machine."""

    wall = 0.0
    cpu = 0.0

    def __enter__(self) -> Clock:
        self._began = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall = time.perf_counter() - self._began[0]
        self.cpu = time.process_time() - self._began[1]


def load() -> tuple[str, Prepared]:
    """Five clients of 20,000 rows."""
    if CENSUS.exists():
        clients = acs.load("income", CENSUS)
        frames = {name: clients[name] for name in STATES}
        source = "ACSIncome 2018"
    else:
        frames = {name: synthetic.state(name, rows=20_000) for name in STATES}
        source = "synthetic states"
    return source, prepare(frames, synthetic.schema())


def plain_loop(prepared: Prepared, model: Model, rounds: int) -> Vector:
    """FedAvg as one would write it: a DataLoader and a fresh Adam for each client and round."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.set_num_threads(1)
    vector = model.initial(0)
    data = {
        client: TensorDataset(torch.from_numpy(rows.matrix), torch.from_numpy(rows.y))
        for client, rows in prepared.train.items()
    }
    total = sum(len(rows) for rows in prepared.train.values())
    for number in range(1, rounds + 1):
        merged = np.zeros(model.size)
        for client, rows in prepared.train.items():
            (order,) = orders(len(rows), 1, seed=0, round=number)
            trained = torch_epoch(
                model, vector, DataLoader(data[client], batch_size=32, sampler=order.tolist())
            )
            merged += len(rows) / total * trained.astype(np.float64)
        vector = merged.astype(np.float32)
    return vector


def torch_epoch(model: Model, vector: Vector, loader: object) -> Vector:
    """One pass of autograd over a loader."""
    import torch

    module = model.module(vector)
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-4)
    loss = torch.nn.BCEWithLogitsLoss()
    for x, y in loader:  # type: ignore[attr-defined]
        optimizer.zero_grad()
        loss(module(x)[:, 0], y).backward()
        optimizer.step()
    return model.flatten(module.state_dict())


def flower(prepared: Prepared, model: Model, rounds: int) -> tuple[Vector, float, float]:
    """The same training through Flower's Ray simulation: parameters, seconds, and seconds of the rounds alone."""
    import tempfile

    os.environ.update(FLWR_TELEMETRY_ENABLED="0", FLWR_DISABLE_UPDATE_CHECK="1", RAY_USAGE_STATS_ENABLED="0")
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    logging.getLogger("flwr").setLevel(logging.ERROR)

    # Workers read their rows from a file, once for each actor: the task of a data loader on a real node.
    folder = tempfile.mkdtemp()
    names = list(prepared.train)
    for i, name in enumerate(names):
        np.savez(f"{folder}/{i}.npz", x=prepared.train[name].matrix, y=prepared.train[name].y)
    inputs = model.inputs
    client_app, server_app = ClientApp(), ServerApp()
    outcome: dict[str, object] = {}

    @client_app.train()
    def fit(message: Message, context: Context) -> Message:
        import torch
        from torch.utils.data import DataLoader, TensorDataset

        torch.set_num_threads(1)
        saved = np.load(f"{folder}/{context.node_config['partition-id']}.npz")
        network = Model(inputs)
        vector = np.concatenate([a.ravel() for a in message.content["arrays"].to_numpy_ndarrays()])
        (order,) = orders(len(saved["y"]), 1, seed=0, round=int(message.content["config"]["server-round"]))
        data = TensorDataset(torch.from_numpy(saved["x"]), torch.from_numpy(saved["y"]))
        trained = torch_epoch(network, vector, DataLoader(data, batch_size=32, sampler=order.tolist()))
        content = RecordDict(
            {
                "arrays": ArrayRecord(list(network.split(trained).values())),
                "metrics": MetricRecord({"num-examples": len(saved["y"])}),
            }
        )
        return Message(content=content, reply_to=message)

    @server_app.main()
    def main(grid: Grid, context: Context) -> None:
        start = ArrayRecord(list(model.split(model.initial(0)).values()))
        began = time.perf_counter()
        done = FedAvg(
            fraction_evaluate=0.0, min_train_nodes=len(names), min_available_nodes=len(names)
        ).start(grid=grid, initial_arrays=start, num_rounds=rounds)
        outcome["rounds"] = time.perf_counter() - began
        outcome["vector"] = np.concatenate([a.ravel() for a in done.arrays.to_numpy_ndarrays()])

    began = time.perf_counter()
    run_simulation(
        server_app,
        client_app,
        num_supernodes=len(names),
        backend_config={"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": os.cpu_count()}},
    )
    spent = time.perf_counter() - began
    return outcome["vector"], spent, float(outcome["rounds"])  # type: ignore[return-value,arg-type]


def test_loss(prepared: Prepared, model: Model, vector: Vector) -> float:
    """Mean log loss on the held-out rows."""
    rows = prepared.held_out
    return float(log_losses(predict(model, vector, rows), rows.y).mean())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="3 rounds of the loop, no Flower")
    parser.add_argument("--rounds", type=int, default=50, help="rounds of fedwise's engine")
    parser.add_argument("--slow-rounds", type=int, default=5, help="rounds of the two baselines")
    options = parser.parse_args()
    source, prepared = load()
    model = Model(prepared.encoder.width)
    rows = sum(len(part) for part in prepared.train.values())
    print(
        f"{source}: {len(prepared.train)} clients, {rows} training rows, {model.inputs} inputs, {os.cpu_count()} cores"
    )
    slow = 3 if options.quick else options.slow_rounds
    config = Config(rounds=options.rounds, replicates=0, settings=LocalSettings(), evaluate_every=10**9)
    simulate(prepared, prepared.clients, Config(rounds=1, replicates=0))  # compile, outside the clock

    def line(name: str, clock: Clock, rounds: int, *more: str) -> None:
        each = clock.wall / rounds * 1e3
        print(
            f"{name:<34}{clock.wall:8.2f} s  cpu {clock.cpu:8.2f} s {each:9.1f} ms a round", *more, sep="   "
        )

    with Clock() as ours:
        simulate(prepared, prepared.clients, config)
    line(f"fedwise, {options.rounds} rounds", ours, options.rounds)
    with Clock() as tested:
        simulate(prepared, prepared.clients, Config(rounds=options.rounds, replicates=0))
    line("  tested after every round", tested, options.rounds)
    short = Config(rounds=slow, replicates=0, evaluate_every=10**9)
    reached = test_loss(prepared, model, simulate(prepared, prepared.clients, short).parameters)

    def beside(clock: Clock, vector: Vector) -> tuple[str, str]:
        ratio = (clock.wall / slow) / (ours.wall / options.rounds)
        return (
            f"{ratio:.1f}x",
            f"test loss differs by {abs(test_loss(prepared, model, vector) - reached):.1e}",
        )

    with Clock() as spent:
        vector = plain_loop(prepared, model, slow)
    ratio = (spent.cpu / slow) / (ours.cpu / options.rounds)
    line(f"DataLoader loop, {slow} rounds", spent, slow, *beside(spent, vector), f"by cpu time {ratio:.1f}x")
    if options.quick:
        return
    try:
        import flwr  # noqa: F401
        import ray  # noqa: F401
    except ImportError:
        sys.exit("Flower with Ray is not installed; run: pip install 'fedwise[flower]', or pass --quick")
    vector, whole, inside = flower(prepared, model, slow)
    # The rounds alone, without the start of Ray; its workers' processor time is not ours to read.
    spent.wall, spent.cpu = inside, float("nan")
    line(f"Flower (Ray), {slow} rounds", spent, slow, *beside(spent, vector), f"with start-up {whole:.1f} s")


if __name__ == "__main__":
    main()
