"""The node's side: answer a plan from features, train on images when chosen."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedwise.flower import guard_mod, release_app

from . import task

# guard_mod keeps the text of exceptions on the node: it may quote a record.
app = ClientApp(mods=[guard_mod])
release_app(app, data=task.features, schema=task.SCHEMA)


@app.train()
def train(message: Message, context: Context) -> Message:
    """One local update on the node's own images."""
    module = task.network()
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    pixels, labels = task.images(context)
    loss = task.train(module, pixels, labels, seed=int(context.run_config.get("seed", 0)))
    content = {
        "arrays": ArrayRecord(module.state_dict()),
        "metrics": MetricRecord({"train_loss": loss, "num-examples": len(labels)}),
    }
    return Message(RecordDict(content), reply_to=message)
