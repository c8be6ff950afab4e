"""SecAgg+: the server sees the sum of the updates and no single one, under any averaging strategy.

Flower ships the protocol for its older API. `SecAgg` is a Grid that runs it underneath: a strategy sends
its train messages as ever and gets back one reply, the weighted mean. `secagg_mod` is the clients' part.
What Flower's version does silently is an error here: a halted protocol, clipped parameters, a weight above
the declared maximum, and example counts that travel in the clear.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.client.mod import secaggplus_mod
from flwr.common import Code, FitIns, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.common.secure_aggregation.secaggplus_constants import (
    RECORD_KEY_CONFIGS,
    RECORD_KEY_STATE,
    Key,
    Stage,
)
from flwr.compat.common import recorddict_compat as compat
from flwr.server.workflow.secure_aggregation.secaggplus_workflow import SecAggPlusWorkflow, WorkflowState
from flwr.serverapp import Grid

from ..errors import CheckFailed, FedwiseError
from .grid import GridView

_LOG = logging.getLogger("flwr")
_STAGES = ("exchange of keys", "sharing of keys", "collection of masked updates", "removal of masks")


class SecAggHalted(CheckFailed):
    """The protocol stopped; no aggregate exists, and the model was not changed."""

    def __init__(self, stage: int, answered: int, asked: int) -> None:
        super().__init__(
            f"secure aggregation halted in the {_STAGES[stage]}: {answered} of {asked} clients answered, "
            "too few; restart the missing nodes, or lower reconstruction_threshold"
        )
        self.stage = stage


class SecAgg(GridView):
    """A Grid on which every train message goes through SecAgg+.

    Any strategy that averages works on it unchanged (FedAvg, FedProx, FedAvgM, FedAdam, …). Those that
    look at single updates (Krum, medians) cannot, by design: they see one reply.

    Parameters
    ----------
    grid
        The Grid of the federation.
    max_weight
        Upper bound of any client's ``num-examples``. A client above it refuses; far too large costs precision.
    clipping_range
        Bound of every parameter; a client that would be clipped refuses.
    num_shares, reconstruction_threshold
        As Flower's: shares of each key (1.0: all clients), and how many of them rebuild it. Clients
        refuse a threshold of half or less: a server could then unmask two halves apart.
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
        num_shares: float = 1.0,
        reconstruction_threshold: float = 2 / 3,
        on_halt: str = "raise",
        retries: int = 1,
    ) -> None:
        if on_halt not in ("raise", "skip"):
            raise FedwiseError(f"on_halt must be raise or skip, got '{on_halt}'")
        super().__init__(grid)
        self.options = {
            "num_shares": num_shares,
            "reconstruction_threshold": reconstruction_threshold,
            "max_weight": float(max_weight),
            "clipping_range": float(clipping_range),
        }
        self.on_halt, self.retries = on_halt, retries
        self.halted: list[SecAggHalted] = []
        self._round = 0

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """One reply with the weighted mean for train messages; everything else is forwarded."""
        asked = list(messages)
        kinds = {message.metadata.message_type for message in asked}
        if kinds != {"train"}:
            if any(kind.split(".")[0] == "train" for kind in kinds):
                raise FedwiseError(
                    "secure aggregation takes messages of type 'train' only, and not mixed with others"
                )
            return list(self.grid.send_and_receive(asked, timeout=timeout))
        self._round += 1
        contents = {message.metadata.dst_node_id: message.content for message in asked}
        try:
            arrays = self._aggregate(contents, timeout)
        except SecAggHalted as halt:
            self.halted.append(halt)
            if self.on_halt == "raise":
                raise
            _LOG.error("fedwise: %s; this round changes nothing", halt)
            return []
        content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1.0})})
        return [Message(content, reply_to=asked[0])]

    def _aggregate(self, contents: dict[int, RecordDict], timeout: float | None) -> ArrayRecord:
        nodes = set(contents)
        for attempt in range(self.retries + 1):
            try:
                return self._attempt({node: contents[node] for node in nodes}, timeout)
            except _Stopped as stop:
                # Before the third stage nothing about the updates has left a client: starting anew is safe.
                if stop.stage >= 2 or attempt == self.retries or len(stop.active) < 2:
                    raise SecAggHalted(stop.stage, len(stop.active), len(nodes)) from None
                nodes = stop.active
                _LOG.warning("fedwise: secure aggregation starts anew with %d clients", len(nodes))
        raise AssertionError

    def _attempt(self, contents: dict[int, RecordDict], timeout: float | None) -> ArrayRecord:
        workflow = SecAggPlusWorkflow(**self.options, timeout=timeout)
        state = WorkflowState()
        sent = next(iter(contents.values())).array_records["arrays"]
        result: list[Any] = []
        context = _legacy_context(self._round, sent, list(contents), result)
        stages = (
            workflow.setup_stage,
            workflow.share_keys_stage,
            workflow.collect_masked_vectors_stage,
            workflow.unmask_stage,
        )
        for number, stage in enumerate(stages):
            done = stage(self.grid, context, state)
            if number == 0:
                # Flower's older format forgets names, types and shapes; send what the strategy made instead.
                state.nid_to_fitins = {node: RecordDict(dict(content)) for node, content in contents.items()}
            if not done or (number < 2 and state.active_node_ids != set(contents)):
                raise _Stopped(number, set(state.active_node_ids))
        arrays = parameters_to_ndarrays(result[0])
        return ArrayRecord(
            {
                name: Array(np.asarray(value, dtype=old.numpy().dtype).reshape(old.numpy().shape))
                for (name, old), value in zip(sent.items(), arrays, strict=True)
            }
        )


class _Stopped(Exception):
    def __init__(self, stage: int, active: set[int]) -> None:
        super().__init__()
        self.stage, self.active = stage, active


def _legacy_context(number: int, arrays: ArrayRecord, nodes: list[int], result: list[Any]) -> Any:
    """What Flower's workflow reads of its older context, and a place for the aggregate."""

    def configure_fit(*_: Any) -> list[tuple[Any, FitIns]]:
        ins = FitIns(ndarrays_to_parameters([]), {})
        return [(SimpleNamespace(node_id=node), ins) for node in nodes]

    def aggregate_fit(
        _round: int, results: list[tuple[Any, FitRes]], _failures: Any
    ) -> tuple[None, dict[str, Any]]:
        result.append(results[0][1].parameters)
        return None, {}

    state = RecordDict({"config": ConfigRecord({"current_round": number}), "parameters": arrays})
    return SimpleNamespace(
        state=state,
        strategy=SimpleNamespace(configure_fit=configure_fit, aggregate_fit=aggregate_fit),
        client_manager=SimpleNamespace(num_available=lambda: len(nodes)),
    )


def secagg_mod(
    message: Message, context: Context, call_next: Callable[[Message, Context], Message]
) -> Message:
    """The clients' part: ``ClientApp(mods=[guard_mod, secagg_mod])``.

    A train message outside the protocol is refused, so a server cannot get an update in the clear by
    leaving the protocol out.
    """
    kind = message.metadata.message_type
    if kind.split(".")[0] != "train":
        return call_next(message, context)
    if kind != "train" or RECORD_KEY_CONFIGS not in message.content.config_records:
        raise FedwiseError(
            "this node trains under secure aggregation only; use the SecAgg grid on the server"
        )
    asked = message.content.config_records[RECORD_KEY_CONFIGS]
    if asked.get(Key.STAGE) == Stage.SETUP and 2 * int(asked[Key.THRESHOLD]) <= int(asked[Key.SHARE_NUMBER]):
        raise FedwiseError("secure aggregation must use a threshold above half of the shares")

    def update(inner: Message, inner_context: Context) -> Message:
        plain = RecordDict({k: v for k, v in inner.content.items() if k != RECORD_KEY_CONFIGS})
        inner.content = plain
        reply = call_next(inner, inner_context)
        return Message(_fit_result(reply, inner_context), reply_to=inner)

    reply = secaggplus_mod(message, context, update)
    for record in reply.content.metric_records.values():
        # The number of rows is inside the masked vector; in the clear it has no business.
        record["num_examples"] = 0
    return reply


def _fit_result(reply: Message, context: Context) -> RecordDict:
    """A Message-API reply as the older record Flower's mod masks, after checking what it would hide."""
    if reply.has_error() or len(reply.content.array_records) != 1:
        raise FedwiseError("secure aggregation needs an update with exactly one ArrayRecord")
    arrays = [array.numpy() for array in next(iter(reply.content.array_records.values())).values()]
    weight = float(next(iter(reply.content.metric_records.values()))["num-examples"])
    agreed = context.state.config_records[RECORD_KEY_STATE]
    share = weight / float(agreed["max_weight"])
    largest = max((float(np.abs(array).max(initial=0.0)) for array in arrays), default=0.0)
    if not 0 < share <= 1:
        raise FedwiseError(
            "secure aggregation needs a max_weight of at least the largest client's weight; raise it"
        )
    if not largest * share <= float(agreed["clipping_range"]):
        raise FedwiseError("secure aggregation would clip a parameter; raise clipping_range")
    result = FitRes(Status(Code.OK, ""), ndarrays_to_parameters(arrays), weight, {})
    return compat.fitres_to_recorddict(result, False)
