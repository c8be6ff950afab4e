"""pytorch: what the server does."""

from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fedwise.flower import select_federation

from .task import Net

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Average the networks of all nodes."""
    arrays = ArrayRecord(Net().state_dict())
    strategy = FedAvg(fraction_evaluate=context.run_config["fraction-evaluate"])
    federation = select_federation(grid, "schema.toml", k=3, expected=6)
    result = strategy.start(
        grid=federation.grid,
        initial_arrays=arrays,
        train_config=ConfigRecord({"lr": context.run_config["lr"]}),
        num_rounds=context.run_config["num-server-rounds"],
    )
    print(result.evaluate_metrics_clientapp)
