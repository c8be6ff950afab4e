"""tabular: a Flower ClientApp."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from tabular.task import chances, fit, load_data, log_loss

app = ClientApp()


@app.train()
def train(msg: Message, context: Context) -> Message:
    (x, y), _ = load_data(context.node_config["data"])
    (w,) = msg.content["arrays"].to_numpy_ndarrays()
    w = fit(w, x, y, context.run_config["local-epochs"], context.run_config["learning-rate"])
    metrics = {"train_loss": log_loss(w, x, y), "num-examples": len(y)}
    content = RecordDict({"arrays": ArrayRecord([w]), "metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    _, (x, y) = load_data(context.node_config["data"])
    (w,) = msg.content["arrays"].to_numpy_ndarrays()
    accuracy = float(((chances(w, x) > 0.5) == y).mean())
    metrics = {"eval_loss": log_loss(w, x, y), "eval_acc": accuracy, "num-examples": len(y)}
    return Message(content=RecordDict({"metrics": MetricRecord(metrics)}), reply_to=msg)
