"""Client side: a query handler that answers a plan from local rows, under the owner's policy."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp import ClientApp

from ..errors import FedwiseError
from ..owner.policies import Policies
from ..owner.policy import Policy
from ..owner.replies import records, reply_to
from ..planning import Plan
from ..schema.frame import FrameLike
from ..schema.schema import Schema
from . import wire
from .guard import STATE, Guard, Handler, find_policies, guard
from .places import beside
from .simulation import simulation_policy

_LOG = logging.getLogger("flwr")
#: An app's function that gives rows is called for one node at a time, also where nodes answer in threads.
_ASKING = threading.Lock()
#: Rows, a path, or a function of the node's context that gives either.
DataSource = FrameLike | Callable[[Context], FrameLike]
#: A policy, the path of one, or a function of the node's context that gives either.
PolicySource = str | Path | Policy | Callable[[Context], "str | Path | Policy"]


def release_app(
    app: ClientApp | None = None, *, data: Any = None, policy: Any = None, schema: Any = None
) -> ClientApp:
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
        The owner's policy file, a folder of them, a `Policy`, or a function of the node's `Context`. Default:
        ``policy.toml`` in the directory the node was started in. What ``--node-config 'policy="…"'`` names goes
        first: the node's owner decides, not the app.
    schema
        For simulations: a schema, or its file beside the app's module. Every partition is then a client of its
        own whose releases carry seeded noise and say *simulated*. Deployed nodes ignore it.

    Returns
    -------
    ClientApp
        The app, which now answers messages of type ``query.fedwise_release``, and every other message only as
        the policy allows: also with handlers of its own.
    """
    app = ClientApp() if app is None else app
    source = _source(policy, schema, sys._getframe(1).f_globals)
    app.query(wire.ACTION)(Releaser(data, source))
    guard(app, policy=source).releases = True
    return app


def release_mod(
    *, data: Any = None, policy: Any = None, schema: Any = None
) -> Callable[[Message, Context, Handler], Message]:
    """The same as a Flower mod, for apps built from a ``client_fn``: ``ClientApp(client_fn, mods=[…])``.

    Put it first: it answers plans, and lets other messages pass as the policy allows.
    """
    source = _source(policy, schema, sys._getframe(1).f_globals)
    releaser, guarded = Releaser(data, source), Guard(source)

    def mod(message: Message, context: Context, call_next: Handler) -> Message:
        if message.metadata.message_type == wire.MESSAGE_TYPE:
            return releaser(message, context)
        return guarded(message, context, call_next)

    return mod


def _source(policy: Any, schema: Any, caller: Mapping[str, Any]) -> Any:
    """Where the app says the policy is."""
    if policy is not None and schema is not None:
        raise FedwiseError("release_app takes a policy or a schema for simulations, not both; drop one")
    if schema is None:
        return "policy.toml" if policy is None else policy
    return simulation_policy(
        schema if isinstance(schema, Schema) else beside(schema, caller), otherwise="policy.toml"
    )


class Releaser:
    """Answers one request after the other. Nothing it raises leaves the node."""

    def __init__(self, data: Any = None, policy: Any = "policy.toml") -> None:
        self.data = data
        self.policy = policy

    def __call__(self, message: Message, context: Context) -> Message:
        """A release, or a refusal from a fixed list."""
        found: list[Policies] = []

        def terms(plan: Plan) -> Policy:
            found.append(find_policies(self.policy, context))
            return found[-1].for_plan(plan)

        made = reply_to(
            wire.unwrap(message),
            terms,
            lambda policy: find_data(self.data, policy, context),
            log=_LOG,
        )
        if made.release is not None and not made.release.scored:
            context.state[STATE] = ConfigRecord(
                {
                    "plan": made.release.plan_digest,
                    "records": records(made.release),
                    "policy": found[-1].name_like(made.policy),
                }
            )
        return Message(wire.carry(made.content), reply_to=message)


def find_data(source: Any, policy: Policy | None, context: Context) -> FrameLike:
    """The node's rows. ``run_config`` is not asked: it comes from the coordinator."""
    if "data" in context.node_config:
        return str(context.node_config["data"])
    if policy is not None and policy.data is not None:
        return policy.data
    if source is not None:
        with _ASKING:
            return source(context) if callable(source) else source
    raise FedwiseError(
        "node has no data; name it in the policy file or with --node-config 'data=\"rows.parquet\"'"
    )
