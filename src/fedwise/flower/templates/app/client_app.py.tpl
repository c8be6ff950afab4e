"""The node's side: answer a plan under the owner's policy, then train when chosen."""

from fedwise.flower import guard_mod, release_app, train_app
from flwr.clientapp import ClientApp

from . import task

# guard_mod keeps the text of exceptions on the node: it may quote a record.
app = ClientApp(mods=[guard_mod])
release_app(app, data=task.data, policy=task.policy)
train_app(
    app, schema=task.SCHEMA, data=task.data, policy=task.policy, model=task.MODEL, settings=task.SETTINGS
)
