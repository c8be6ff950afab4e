"""The coordinator's side: ask for features' tables, choose, train a network on the images of the chosen nodes."""

import json
from pathlib import Path

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fedwise.flower import select_federation

from . import task

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Release, selection, training, test."""
    config = context.run_config
    federation = select_federation(
        grid,
        task.SCHEMA,
        k=config["k"],
        expected=config["expected"],
        epsilon=config["epsilon"],
        seed=config["seed"],
    )
    strategy = FedAvg(fraction_evaluate=0.0)
    result = strategy.start(
        grid=federation.grid,
        initial_arrays=ArrayRecord(task.network(config["seed"]).state_dict()),
        num_rounds=config["rounds"],
    )
    module = task.network()
    module.load_state_dict(result.arrays.to_torch_state_dict())
    summary = {"clients": federation.clients, "accuracy": task.accuracy(module)}
    print(json.dumps(summary))
    if config["output"]:
        Path(config["output"]).write_text(json.dumps(summary) + "\n")
