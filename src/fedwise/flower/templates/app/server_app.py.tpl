"""The coordinator's side: ask for releases, choose, train on the chosen nodes only."""

from pathlib import Path

import fedwise as fw
import numpy as np
from fedwise.flower import initial_arrays, select_federation
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from . import task

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Release, selection, training."""
    config = context.run_config
    output = Path(config["output"]) if config["output"] else None
    plan = fw.plan(task.SCHEMA, epsilon=config["epsilon"], delta=config["delta"])
    nodes = max(config["expected"], len(list(grid.get_node_ids())))
    federation = select_federation(
        grid,
        plan,
        k=config["k"] or max(1, nodes // 2),
        expected=config["expected"],
        timeout=config["timeout"],
        grace=config["grace"],
        seed=config["seed"],
        substitutes=config["substitutes"],
        save=output / "releases" if output else None,
    )
    # Any Flower strategy works here: it sees the chosen nodes and nobody else.
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
    result = strategy.start(
        grid=federation.grid,
        initial_arrays=initial_arrays(task.SCHEMA, task.MODEL, seed=config["seed"]),
        num_rounds=config["rounds"],
        timeout=config["round-timeout"],
    )
    if output is not None:
        federation.save(output, result, force=True)  # fedwise report reads this directory
        np.savez(output / "model.npz", **{name: array.numpy() for name, array in result.arrays.items()})
