"""tabular: what the server does."""

from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from .task import get_model

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Average the weights of all nodes."""
    num_rounds = context.run_config["num-server-rounds"]
    arrays = ArrayRecord({"weights": Array(get_model())})
    strategy = FedAvg(fraction_evaluate=1.0)
    result = strategy.start(
        grid=grid,
        initial_arrays=arrays,
        num_rounds=num_rounds,
    )
    print(result.evaluate_metrics_clientapp)
