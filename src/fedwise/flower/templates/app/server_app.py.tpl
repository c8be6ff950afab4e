"""The coordinator's side: ask for releases, choose, train on the chosen nodes only."""

import json
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
    federation = select_federation(
        grid,
        plan,
        k=config["k"],
        expected=config["expected"],
        timeout=config["timeout"],
        grace=config["grace"],
        seed=config["seed"],
        save=output / "releases" if output else None,
    )
    # Any Flower strategy works here: it sees the chosen nodes and nobody else.
    strategy = FedAvg(fraction_evaluate=0.0)
    result = strategy.start(
        grid=federation.grid,
        initial_arrays=initial_arrays(task.SCHEMA, task.MODEL, seed=config["seed"]),
        num_rounds=config["rounds"],
        timeout=config["round-timeout"],
    )
    if output is not None:
        np.savez(output / "model.npz", **{name: array.numpy() for name, array in result.arrays.items()})
        summary = {
            "clients": federation.clients,
            "loss": federation.selection.loss,
            "absent": [str(absence) for absence in federation.absent],
            "missing_in_training": [list(lost) for lost in federation.grid.missing],
        }
        (output / "federation.json").write_text(json.dumps(summary, indent=2) + "\n")
