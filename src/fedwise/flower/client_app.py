"""Client side: a query handler that answers a plan from local rows, under the owner's policy."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp import ClientApp

from ..errors import BudgetExceeded, FedwiseError, PlanError
from ..owner.answer import answer
from ..owner.archive import Archive
from ..owner.policy import Declined, Policy, Refusal
from ..owner.release import Release, release
from ..planning import Plan
from ..schema.frame import FrameLike
from . import wire
from .guard import Guard, Handler, describe, find_policy, guard

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
        try:
            made = self.answer(wire.read_request(message), context)
            context.state[STATE] = ConfigRecord({"plan": made.plan_digest, "records": records(made)})
            content = wire.released(made.encode())
        except Declined as refused:
            _LOG.warning("fedwise: declined a plan: %s", refused.refusal.sentence)
            content = wire.declined(refused.refusal)
        except Exception as cause:
            _LOG.error("fedwise: no release was made: %s", describe(cause))
            content = wire.declined(Refusal.FAILED)
        return Message(content, reply_to=message)

    def answer(self, request: bytes | None, context: Context) -> Release:
        """Check the plan against the policy, and answer it as `fedwise release` does.

        Raises
        ------
        Declined
            With a fixed reason.
        FedwiseError
            The data or the disk failed; for the owner's eyes only.
        """
        try:
            plan = Plan.decode(request or b"")
        except PlanError:
            raise Declined(Refusal.UNREADABLE) from None
        policy = find_policy(self.policy, context)
        try:
            policy.check(plan)
        except Declined:
            raise
        except FedwiseError as cause:
            _LOG.error("fedwise: the policy cannot be used: %s", cause)
            raise Declined(Refusal.POLICY) from None
        if policy.ledger is None:
            frame = find_data(self.data, policy, context)
            return release(plan, frame, client=policy.client, simulated=True, seed=policy.simulated_seed)
        try:
            made = answer(
                plan,
                lambda: find_data(self.data, policy, context),
                client=policy.client,
                ledger=policy.open_ledger,
                archive=Archive(policy.ledger),
            )
        except BudgetExceeded as cause:
            _LOG.warning("fedwise: %s", cause)
            raise Declined(Refusal.BUDGET) from None
        if made.repeated:
            _LOG.info(
                "fedwise: this plan was answered before; the kept release is sent again, nothing is charged"
            )
        else:
            found = made.release
            _LOG.info("fedwise: released %d noisy tables at epsilon %s", len(found.tables), found.epsilon)
        return made.release


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


def records(made: Release) -> float:
    """Number of records as the noisy tables tell it: no exact count, so it may travel.

    Table j sums to n plus noise of variance cells_j·σ_j²; the inverse-variance mean of all tables, at
    least 1. Exact for a plan without privacy.
    """
    sums = np.array([sum(table.counts) for table in made.tables], dtype=np.float64)
    if not made.private:
        return max(float(sums[0]), 1.0)
    precision = np.array([1 / (len(table.counts) * table.sigma**2) for table in made.tables])
    return max(float(precision @ sums / precision.sum()), 1.0)
