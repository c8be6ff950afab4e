"""pytorch: what a node does."""

import polars as pl
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedwise.flower import release_app

from .task import Net, load_data, load_pictures
from .task import test as test_net
from .task import train as train_net

app = ClientApp()


def rows(context: Context):
    """What the tables may tell of the pictures: how bright, and of which kind."""
    pictures, labels = load_pictures(context.node_config["partition-id"])
    return pl.DataFrame({"brightness": pictures.mean((1, 2, 3)).numpy(), "label": labels.numpy()})


release_app(app, data=rows, schema="schema.toml")


@app.train()
def train(message: Message, context: Context):
    """Train the received network on local pictures."""
    net = Net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    loader, _ = load_data(context.node_config["partition-id"], context.run_config["batch-size"])
    loss = train_net(net, loader, context.run_config["local-epochs"], message.content["config"]["lr"])
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(loader.dataset)})
    content = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context):
    """Test the received network on local pictures."""
    net = Net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    _, loader = load_data(context.node_config["partition-id"], context.run_config["batch-size"])
    loss, accuracy = test_net(net, loader)
    metrics = MetricRecord({"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(loader.dataset)})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=message)
