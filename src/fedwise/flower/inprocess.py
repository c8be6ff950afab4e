"""In-process Grid: a ClientApp run in this very process, for tests and notebooks. No Ray, no network.

This is the one file that touches private parts of Flower (`TaskIdentity`, message ids); a contract test
compares it with Flower's own simulation.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, NamedTuple

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from ..search.control import cores
from . import wire
from .simulation import in_process

_SERVER = 1
_RUN = 1
_RAISED = 2
#: Nodes that answer at the same time for each core: while one waits for the disk, another computes.
_NODES_PER_CORE = 3


class _Sent(NamedTuple):
    """A message under the number it was given."""

    number: str
    message: Message

    @property
    def node(self) -> int:
        return int(self.message.metadata.dst_node_id)


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
        """Deliver, run the handler, keep the reply.

        Nodes with a policy of their own answer plans at the same time, a few for each core: most of the time goes
        to the sampler of noise, which leaves the interpreter free, and to waiting for the disk. Nodes that share a
        policy, and every other message, are handled one after the other.
        """
        sent: list[_Sent] = []
        for message in messages:
            sent.append(_Sent(str(uuid.uuid4()), message))
            message.metadata.__dict__["_message_id"] = sent[-1].number
        away = self.offline | self.silent
        taken = [each for each in sent if each.node not in away and each.node in self.contexts]
        queues = self._queues(taken)
        if len(queues) > 1:
            with ThreadPoolExecutor(min(_NODES_PER_CORE * cores(), len(queues))) as crowd:
                runs = [crowd.submit(copy_context().run, self._handle_all, queue) for queue in queues]
                done = {number: reply for run in runs for number, reply in run.result().items()}
        else:
            done = self._handle_all(taken)
        self._replies.update((each.number, done[each.number]) for each in taken)
        return [each.number for each in sent]

    def _queues(self, sent: Sequence[_Sent]) -> list[list[_Sent]]:
        """Messages that may be handled at the same time: those of one queue keep their order."""
        if any(each.message.metadata.message_type != wire.MESSAGE_TYPE for each in sent):
            return [list(sent)]
        queues: dict[str, list[_Sent]] = {}
        for each in sent:
            queues.setdefault(str(self.contexts[each.node].node_config.get("policy", "")), []).append(each)
        return list(queues.values())

    def _handle_all(self, sent: Sequence[_Sent]) -> dict[str, Message]:
        """Replies by the number of the message they answer."""
        return {each.number: self._handle(each.message) for each in sent}

    def _handle(self, message: Message) -> Message:
        # A copy both ways: on a wire nobody can change what the other side holds.
        received = copy.deepcopy(message)
        try:
            with in_process():
                reply = self.app(received, self.contexts[message.metadata.dst_node_id])
        except Exception as cause:
            # What Flower does, leak included: tests of sanitised errors depend on it.
            reply = Message(Error(code=_RAISED, reason=f"{type(cause)}:<'{cause}'>"), reply_to=received)
        reply = copy.deepcopy(reply)
        reply.metadata.__dict__["_message_id"] = str(uuid.uuid4())
        return reply

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Replies that are there, each once."""
        return [self._replies.pop(number) for number in list(message_ids) if number in self._replies]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Replies of all who answer; nobody is waited for."""
        return self.pull_messages(self.push_messages(list(messages)))
