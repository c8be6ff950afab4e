"""Client side: a query handler that answers a plan from local rows, under the owner's policy."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp import ClientApp

from ..errors import FedwiseError
from ..owner.policy import Policy
from ..owner.replies import records, reply_to
from ..schema.frame import FrameLike
from . import wire
from .guard import Guard, Handler, find_policy, guard

_LOG = logging.getLogger("flwr")
#: Key of the record in ``context.state`` that holds what this run's release said.
STATE = "fedwise.release"
#: Rows, a path, or a function of the node's context that gives either.
DataSource = FrameLike | Callable[[Context], FrameLike]
#: A policy, the path of one, or a function of the node's context that gives either.
PolicySource = str | Path | Policy | Callable[[Context], "str | Path | Policy"]


def release_app(app: ClientApp | None = None, *, data: Any = None, policy: Any = "policy.toml") -> ClientApp:
    """Teach a ClientApp to answer plans.

    Parameters
    ----------
    app
        An app with ``@app.train`` handlers; a new one where left out. An app built from a ``client_fn``
        takes `release_mod` among its mods instead.
    data
        The rows: anything `fedwise.release` accepts, or a function of the node's `Context`. A path in
        ``--node-config 'data="people.parquet"'`` goes first, then the policy's: the owner decides.
    policy
        The owner's policy file, a `Policy`, or a function of the node's `Context`. A path in
        ``--node-config 'policy="policy.toml"'`` goes first: the node's owner decides, not the app.

    Returns
    -------
    ClientApp
        The app, which now answers messages of type ``query.fedwise_release``, and every other message only as
        the policy allows: also with handlers of its own.
    """
    app = ClientApp() if app is None else app
    app.query(wire.ACTION)(Releaser(data, policy))
    guard(app, policy=policy).releases = True
    return app


def release_mod(
    *, data: Any = None, policy: Any = "policy.toml"
) -> Callable[[Message, Context, Handler], Message]:
    """The same as a Flower mod, for apps built from a ``client_fn``: ``ClientApp(client_fn, mods=[…])``.

    Put it first: it answers plans, and lets other messages pass as the policy allows.
    """
    releaser, guarded = Releaser(data, policy), Guard(policy)

    def mod(message: Message, context: Context, call_next: Handler) -> Message:
        if message.metadata.message_type == wire.MESSAGE_TYPE:
            return releaser(message, context)
        return guarded(message, context, call_next)

    return mod


class Releaser:
    """Answers one request after the other. Nothing it raises leaves the node."""

    def __init__(self, data: Any = None, policy: Any = "policy.toml") -> None:
        self.data = data
        self.policy = policy

    def __call__(self, message: Message, context: Context) -> Message:
        """A release, or a refusal from a fixed list."""
        made = reply_to(
            wire.unwrap(message),
            lambda plan: find_policy(self.policy, context),
            lambda policy: find_data(self.data, policy, context),
            log=_LOG,
        )
        if made.release is not None:
            context.state[STATE] = ConfigRecord(
                {"plan": made.release.plan_digest, "records": records(made.release)}
            )
        return Message(wire.carry(made.content), reply_to=message)


def find_data(source: Any, policy: Policy | None, context: Context) -> FrameLike:
    """The node's rows. ``run_config`` is not asked: it comes from the coordinator."""
    if "data" in context.node_config:
        return str(context.node_config["data"])
    if policy is not None and policy.data is not None:
        return policy.data
    if source is not None:
        return source(context) if callable(source) else source
    raise FedwiseError(
        "node has no data; name it in the policy file or with --node-config 'data=\"rows.parquet\"'"
    )
