"""Secure aggregation: the server sees the sum over a cohort and nothing of one client, under any averaging strategy.

`SecAgg` is a Grid that runs the protocol underneath: a strategy sends its train and evaluate messages as ever
and gets back one reply, the weighted mean. `secagg_mod` is the clients' part. The protocol is fedwise's own
(`secagg_client`, `secagg_server`): Flower's masks are expanded from 32 bits of their secrets, and a server can
try them all.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid

from ..errors import CheckFailed, FedwiseError
from .grid import GridView
from .guard import LOSS_ACTION
from .quantisation import Total
from .secagg_client import secagg_mod, secagg_mod_for
from .secagg_server import Round, Stopped
from .secagg_wire import Setup, content_digest

__all__ = ["SecAgg", "SecAggHalted", "secagg_mod", "secagg_mod_for"]

_LOG = logging.getLogger("flwr")
_STAGES = ("exchange of keys", "sharing of keys", "collection of masked updates", "removal of masks")


class SecAggHalted(CheckFailed):
    """The protocol stopped; no aggregate exists, and the model was not changed."""

    def __init__(self, stage: int, why: str) -> None:
        super().__init__(f"secure aggregation halted in the {_STAGES[stage]}: {why}")
        self.stage = stage


class SecAgg(GridView):
    """A Grid on which every train and evaluate message goes through secure aggregation.

    Any strategy that averages works on it unchanged (FedAvg, FedProx, FedAvgM, FedAdam, …). Those that
    look at single updates (Krum, medians) cannot, by design: they see one reply. All clients of a round must
    be sent the same content.

    Parameters
    ----------
    grid
        The Grid of the federation.
    max_weight
        Upper bound of any client's ``num-examples``. A client above it stops the round; far too large costs
        precision.
    clipping_range
        Bound of every parameter; a client that would be clipped stops the round. How many do is in the
        sum, but not who.
    reconstruction_threshold
        How many clients must stay to the end: a share of the cohort, or a number. Clients refuse half or
        less: a server could then unmask two halves apart.
    on_halt
        ``raise`` `SecAggHalted`, or ``skip`` the round: the strategy gets no reply, which is logged and
        kept in `halted`.
    retries
        New attempts with the clients still there, when someone leaves before any masked update was sent.
    """

    def __init__(
        self,
        grid: Grid,
        *,
        max_weight: float,
        clipping_range: float = 8.0,
        reconstruction_threshold: float = 2 / 3,
        on_halt: str = "raise",
        retries: int = 1,
    ) -> None:
        if on_halt not in ("raise", "skip"):
            raise FedwiseError(f"on_halt must be raise or skip, got '{on_halt}'")
        super().__init__(grid)
        self.max_weight, self.clipping_range = float(max_weight), float(clipping_range)
        self.reconstruction_threshold = reconstruction_threshold
        self.on_halt, self.retries = on_halt, retries
        self.halted: list[SecAggHalted] = []
        self._round = 0

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """One reply with the weighted mean for train and evaluate messages; releases are forwarded.

        Raises
        ------
        FedwiseError
            The messages ask for something of single clients, or differ from client to client.
        SecAggHalted
            There is no aggregate, and `on_halt` is ``raise``.
        """
        asked = list(messages)
        kinds = {message.metadata.message_type for message in asked}
        if not any(kind.split(".")[0] in ("train", "evaluate") for kind in kinds):
            if f"query.{LOSS_ACTION}" in kinds:
                raise FedwiseError(
                    "clients under secure aggregation tell no loss of their own; use a sampler that asks for none"
                )
            return list(self.grid.send_and_receive(asked, timeout=timeout))
        if kinds not in ({"train"}, {"evaluate"}):
            raise FedwiseError(
                "secure aggregation takes messages of type 'train' only or 'evaluate' only, "
                f"got {', '.join(sorted(kinds))}; send them apart"
            )
        if len({content_digest(b"", message.content) for message in asked}) > 1:
            raise FedwiseError(
                "secure aggregation must send all clients the same content, got different ones; "
                "use a strategy that does not treat clients apart"
            )
        self._round += 1
        try:
            names, total = self._aggregate(asked, timeout)
        except SecAggHalted as halt:
            self.halted.append(halt)
            if self.on_halt == "raise":
                raise
            _LOG.error("fedwise: %s; this round changes nothing", halt)
            return []
        (kind,) = kinds
        content = _metrics(names, total) if kind == "evaluate" else _arrays(asked[0].content, total)
        return [Message(content, reply_to=asked[0])]

    def _aggregate(self, asked: list[Message], timeout: float | None) -> tuple[tuple[str, ...], Total]:
        nodes = {message.metadata.dst_node_id for message in asked}
        for attempt in range(self.retries + 1):
            try:
                names, total = Round(
                    self.grid,
                    asked[0].metadata.message_type,
                    asked[0].content,
                    nodes=nodes,
                    terms=self._terms(len(nodes)),
                    number=self._round,
                    timeout=timeout,
                ).run()
            except Stopped as stop:
                # Before the third stage nothing about the updates has left a client: starting anew is safe.
                if stop.stage >= 2 or attempt == self.retries or len(stop.active) < 2:
                    raise SecAggHalted(stop.stage, _too_few(len(stop.active), len(nodes))) from None
                nodes = stop.active
                _LOG.warning("fedwise: secure aggregation starts anew with %d clients", len(nodes))
                continue
            if total.heavy:
                raise SecAggHalted(3, f"{total.heavy} of {len(nodes)} clients are above max_weight; raise it")
            if total.clipped:
                raise SecAggHalted(
                    3, f"{total.clipped} of {len(nodes)} clients would be clipped; raise clipping_range"
                )
            return names, total
        raise AssertionError

    def _terms(self, clients: int) -> Setup:
        asked = self.reconstruction_threshold
        if isinstance(asked, int):
            threshold = asked
        else:
            # Rounding must not turn a share above half into half, which clients refuse.
            threshold = max(round(asked * clients), clients // 2 + 1 if asked > 0.5 else 2)
        return Setup(clients, threshold, self.clipping_range, self.max_weight)


def _too_few(answered: int, asked: int) -> str:
    return (
        f"{answered} of {asked} clients answered, too few; restart the missing nodes, ask more clients "
        "(owners set least_cohort in their policies), or change reconstruction_threshold (above half)"
    )


def _metrics(names: tuple[str, ...], total: Total) -> RecordDict:
    found: dict[str, Any] = {name: float(value) for name, value in zip(names, total.mean, strict=True)}
    # The weights are inside the sum; a strategy that weighs one reply gets that reply.
    return RecordDict({"metrics": MetricRecord({**found, "num-examples": 1.0})})


def _arrays(content: RecordDict, total: Total) -> RecordDict:
    """The mean under the names, shapes and types the strategy sent."""
    sent = {name: array.numpy() for name, array in content.array_records["arrays"].items()}
    order = sorted(sent)
    parts = np.split(total.mean, np.cumsum([sent[name].size for name in order])[:-1]) if order else []
    means = dict(zip(order, parts, strict=True))
    arrays = {
        name: Array(np.asarray(means[name], dtype=old.dtype).reshape(old.shape)) for name, old in sent.items()
    }
    return RecordDict({"arrays": ArrayRecord(arrays), "metrics": MetricRecord({"num-examples": 1.0})})
