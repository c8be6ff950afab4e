"""sklearn: what the server does."""

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fedwise.flower import select_federation

from .task import create_model, get_params

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Average the models of all nodes."""
    config = context.run_config
    arrays = ArrayRecord(get_params(create_model(config["local-epochs"])))
    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=1.0)
    federation = select_federation(grid, "schema.toml", k=3, expected=6)
    result = strategy.start(
        grid=federation.grid,
        initial_arrays=arrays,
        num_rounds=config["num-server-rounds"],
    )
    print(result.evaluate_metrics_clientapp)
