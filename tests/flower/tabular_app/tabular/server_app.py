"""tabular: a Flower ServerApp."""

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    strategy = FedAvg(fraction_train=1.0, min_available_nodes=1, min_train_nodes=1, min_evaluate_nodes=1)
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord([np.zeros(3)]),
        num_rounds=context.run_config["num-server-rounds"],
    )
