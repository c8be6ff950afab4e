"""In-process Grid: a ClientApp run in this very process, for tests and notebooks. No Ray, no network.

This is the one file that touches private parts of Flower (`TaskIdentity`, message ids); a contract test
compares it with Flower's own simulation.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from .simulation import in_process

_SERVER = 1
_RUN = 1
_RAISED = 2


class InProcessGrid(Grid):  # type: ignore[misc]  # flwr is not typed for us
    """Nodes that live in this process and answer at once.

    Parameters
    ----------
    app
        The ClientApp every node runs.
    nodes
        How many nodes, or the ``node_config`` of each. Flower's ``partition-id`` and ``num-partitions``
        are set where absent.
    run_config
        The run's configuration, as ``flwr run -c`` gives it.
    """

    def __init__(
        self,
        app: ClientApp,
        nodes: int | Sequence[Mapping[str, Any]],
        *,
        run_config: Mapping[str, Any] | None = None,
    ) -> None:
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, _RUN, _SERVER
        configs: Sequence[Mapping[str, Any]] = [{}] * nodes if isinstance(nodes, int) else nodes
        self.app = app
        self.contexts = {
            1001 + i: Context(
                run_id=_RUN,
                node_id=1001 + i,
                node_config={"partition-id": i, "num-partitions": len(configs), **config},
                state=RecordDict(),
                run_config=dict(run_config or {}),
            )
            for i, config in enumerate(configs)
        }
        #: Nodes that left: not listed, and a message to one is lost.
        self.offline: set[int] = set()
        #: Nodes that are listed but never answer, as if just killed.
        self.silent: set[int] = set()
        self._replies: dict[str, Message] = {}

    def set_run(self, run: Any) -> None:
        """There is one run only."""

    @property
    def run(self) -> Any:
        """There is one run only."""
        return None

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """As Flower's own, deprecated there."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """The nodes that are not offline."""
        return [node for node in self.contexts if node not in self.offline]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Deliver, run the handler, keep the reply."""
        ids = []
        for message in messages:
            number = str(uuid.uuid4())
            message.metadata.__dict__["_message_id"] = number
            ids.append(number)
            node = message.metadata.dst_node_id
            if node in self.offline | self.silent or node not in self.contexts:
                continue
            # A copy both ways: on a wire nobody can change what the other side holds.
            received = copy.deepcopy(message)
            try:
                with in_process():
                    reply = self.app(received, self.contexts[node])
            except Exception as cause:
                # What Flower does, leak included: tests of sanitised errors depend on it.
                reply = Message(Error(code=_RAISED, reason=f"{type(cause)}:<'{cause}'>"), reply_to=received)
            reply = copy.deepcopy(reply)
            reply.metadata.__dict__["_message_id"] = str(uuid.uuid4())
            self._replies[number] = reply
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Replies that are there, each once."""
        return [self._replies.pop(number) for number in list(message_ids) if number in self._replies]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Replies of all who answer; nobody is waited for."""
        return self.pull_messages(self.push_messages(list(messages)))
