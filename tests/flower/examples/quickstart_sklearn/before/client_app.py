"""sklearn: what a node does."""

import warnings

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from .task import create_model, get_params, load_data, set_params

app = ClientApp()


@app.train()
def train(message: Message, context: Context):
    """Fit the received model to local measurements."""
    model = create_model(context.run_config["local-epochs"])
    set_params(model, message.content["arrays"].to_numpy_ndarrays())
    node = context.node_config
    x, y, _, _ = load_data(node["partition-id"], node["num-partitions"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a few steps are not enough to converge, on purpose
        model.fit(x, y)
    metrics = MetricRecord({"num-examples": len(x), "train_accuracy": float(model.score(x, y))})
    content = RecordDict({"arrays": ArrayRecord(get_params(model)), "metrics": metrics})
    return Message(content=content, reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context):
    """Test the received model on local measurements."""
    model = create_model(context.run_config["local-epochs"])
    set_params(model, message.content["arrays"].to_numpy_ndarrays())
    node = context.node_config
    _, _, x, y = load_data(node["partition-id"], node["num-partitions"])
    metrics = MetricRecord({"num-examples": len(x), "accuracy": float(model.score(x, y))})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=message)
