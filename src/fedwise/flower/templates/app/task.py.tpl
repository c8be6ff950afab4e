"""The task: schema, network, and the rows of a node."""

import tempfile
from pathlib import Path

from fedwise import Schema
from fedwise.data import synthetic
from fedwise.errors import FedwiseError
from fedwise.flower import Policy
from fedwise.training.local import LocalSettings
from flwr.app import Context

HERE = Path(__file__).parent
SCHEMA = Schema.load(HERE / "schema.toml")
MODEL = "mlp"
SETTINGS = LocalSettings(lr=0.001, batch=64)


def policy(context: Context) -> Policy:
    """In deployment the node names its own policy file, and this is not asked.

    In simulation every node plays one synthetic state with a ledger of its own.
    """
    config, name, schema = context.run_config, _state(context), HERE / "schema.toml"
    if config["simulated-seed"] >= 0:
        return Policy(client=name, schema=schema, max_epsilon=10.0, simulated_seed=config["simulated-seed"])
    folder = config["ledgers"] or f"{tempfile.gettempdir()}/fedwise-simulation/{context.run_id}"
    Path(folder).mkdir(parents=True, exist_ok=True)
    return Policy(client=name, schema=schema, max_epsilon=10.0, ledger=Path(folder) / f"{name}.db")


def data(context: Context):
    """Rows of a simulated node: artificial records, no person."""
    if "policy" in context.node_config:
        raise FedwiseError('policy file must name the data of a deployed node; add: data = "rows.parquet"')
    return synthetic.state(_state(context), rows=context.run_config["rows"], seed=context.run_config["seed"])


def _state(context: Context) -> str:
    return sorted(synthetic.sizes())[context.node_config["partition-id"]]
