"""tabular: what a node does."""

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from .task import evaluate, load_data, train

app = ClientApp()


@app.train()
def train_handler(message: Message, context: Context):
    """Train the received weights on local rows."""
    node = context.node_config
    train_set, _ = load_data(node["partition-id"], node["num-partitions"])
    weights = train(message.content["arrays"]["weights"].numpy(), train_set)
    metrics = MetricRecord({"num-examples": len(train_set[1])})
    content = RecordDict({"arrays": ArrayRecord({"weights": Array(weights)}), "metrics": metrics})
    return Message(content=content, reply_to=message)


@app.evaluate()
def evaluate_handler(message: Message, context: Context):
    """Test the received weights on local rows."""
    node = context.node_config
    _, test_set = load_data(node["partition-id"], node["num-partitions"])
    accuracy = evaluate(message.content["arrays"]["weights"].numpy(), test_set)
    metrics = MetricRecord({"accuracy": accuracy, "num-examples": len(test_set[1])})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=message)
