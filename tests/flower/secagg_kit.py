"""What the tests of secure aggregation share: clients with known updates, and a server that asks what it likes."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedwise.flower import InProcessGrid, Policy
from fedwise.flower.secagg import secagg_mod, secagg_mod_for
from fedwise.flower.secagg_client import Session
from fedwise.flower.secagg_wire import (
    RECORD,
    Answer,
    Collect,
    Introduce,
    Request,
    Setup,
    Unmask,
    read_answer,
    write,
)

SHAPES = {"w": (5, 3), "b": (3,)}


def update_of(node: int) -> dict[str, Any]:
    """A client's parameters: known to the test, secret to the server."""
    rng = np.random.default_rng(node)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}


def flat(node: int) -> Any:
    """The same, as one vector in the protocol's order."""
    update = update_of(node)
    return np.concatenate([update[name].ravel() for name in sorted(update)]).astype(float)


def weight_of(node: int) -> int:
    return 100 + node * 37 % 800


def metrics_of(node: int) -> dict[str, float]:
    rng = np.random.default_rng(-node % 10_007)
    return {"loss": float(rng.gamma(2.0)), "accuracy": float(rng.random())}


def train(message: Message, context: Context) -> Message:
    arrays = ArrayRecord({name: Array(value) for name, value in update_of(context.node_id).items()})
    metrics = MetricRecord({"num-examples": weight_of(context.node_id), "loss": 0.123})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


def evaluate(message: Message, context: Context) -> Message:
    metrics = MetricRecord({**metrics_of(context.node_id), "num-examples": weight_of(context.node_id)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


def make_app(*mods: Any, train: Any = train, evaluate: Any = evaluate) -> ClientApp:
    app = ClientApp(mods=list(mods))
    app.train()(train)
    app.evaluate()(evaluate)
    return app


def policy(least_cohort: int) -> Policy:
    return Policy(
        client="ash", schema=Path("s.toml"), max_epsilon=1.0, ledger=Path("l.db"), least_cohort=least_cohort
    )


def parameters() -> RecordDict:
    zeros = {name: Array(np.zeros(shape, np.float32)) for name, shape in SHAPES.items()}
    return RecordDict({"arrays": ArrayRecord(zeros), "config": ConfigRecord({"server-round": 1})})


class Refused(Exception):
    """A client said no; the text is its reason."""


class Server:
    """A server that follows the protocol where it is told to, and may leave it at any stage."""

    def __init__(self, nodes: int, *, least: int | None = None, app: ClientApp | None = None) -> None:
        mod = secagg_mod if least is None else secagg_mod_for(policy(least))
        self.grid = InProcessGrid(make_app(mod) if app is None else app, nodes)
        self.nodes = list(self.grid.contexts)

    def ask(
        self, node: int, request: Request | None, *, kind: str = "train", content: RecordDict | None = None
    ) -> Any:
        """One answer, or `Refused`."""
        records = dict(content) if content is not None else {}
        if request is not None:
            records[RECORD] = write(request)
        (reply,) = self.grid.send_and_receive([Message(RecordDict(records), node, kind)])
        if reply.has_error():
            raise Refused(reply.error.reason)
        return read_answer(reply.content) if RECORD in reply.content else reply

    def terms(self, **changes: Any) -> Setup:
        fields = {"clients": len(self.nodes), "threshold": len(self.nodes) * 2 // 3 + 1}
        fields |= {"clipping_range": 8.0, "max_weight": 1000.0}
        return Setup(**(fields | changes))

    def roster(self, *, kind: str = "train", **changes: Any) -> dict[int, tuple[bytes, bytes]]:
        """Everybody's keys, after the first stage."""
        keys = {node: self.ask(node, self.terms(**changes), kind=kind) for node in self.nodes}
        return {node: (found.mask, found.channel) for node, found in keys.items()}

    def share(self, roster: dict[int, tuple[bytes, bytes]], *, kind: str = "train") -> dict[int, Answer]:
        """Everybody's sealed shares, after the second stage."""
        return {node: self.ask(node, Introduce(roster), kind=kind) for node in self.nodes}

    def collect(self, node: int, shares: dict[int, Any], content: RecordDict | None = None) -> Any:
        """One client's masked vector."""
        sealed = {sender: found.sealed[node] for sender, found in shares.items() if sender != node}
        return self.ask(node, Collect(sealed), content=parameters() if content is None else content)

    def begin(self, **changes: Any) -> tuple[dict[int, tuple[bytes, bytes]], dict[int, Any]]:
        """The first three stages with everybody: keys and masked vectors."""
        roster = self.roster(**changes)
        shares = self.share(roster)
        return roster, {node: self.collect(node, shares) for node in self.nodes}

    def unmask(self, node: int, survivors: Iterable[int]) -> Any:
        return self.ask(node, Unmask(list(survivors)))

    def remember(self, node: int) -> RecordDict:
        """A copy of a node's state, as Flower hands it to a second message that runs at the same time."""
        return copy.deepcopy(self.grid.contexts[node].state)

    def restore(self, node: int, state: RecordDict) -> None:
        self.grid.contexts[node].state = copy.deepcopy(state)


def sessions(server: Server) -> dict[int, Session]:
    """What the clients remember: the test may look, the server may not."""
    return {
        node: msgspec.msgpack.decode(context.state.config_records[RECORD]["session"], type=Session)
        for node, context in server.grid.contexts.items()
    }
