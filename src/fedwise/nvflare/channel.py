"""Channel: an NVFlare controller as the coordinator's core sees it, tasks out and bytes in."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable

from ..coordinator.channel import Failure, Node
from . import wire


class NVFlareChannel:
    """Asks sites through a controller's tasks.

    Parameters
    ----------
    controller
        A running `ModelController`.
    """

    def __init__(self, controller: Any) -> None:
        self.controller = controller
        self._tasks: list[Task] = []
        self._results: dict[str, Shareable] = {}
        self._lock = threading.Lock()  # results come in threads of NVFlare's own

    def online(self) -> Iterable[Node]:
        """Sites that are registered now."""
        return [client.name for client in self.controller.engine.get_clients()]

    def ask(self, nodes: Sequence[Node], request: bytes, *, seconds: float) -> Mapping[str, Node]:
        """Send a task that lives for so many seconds."""
        number = len(self._tasks)

        def keep(client_task: ClientTask, fl_ctx: FLContext) -> None:
            with self._lock:
                self._results[f"{number}/{client_task.client.name}"] = client_task.result
            client_task.result = None  # as NVFlare's own controllers do: it was taken over

        task = Task(
            name=wire.TASK,
            data=wire.carry(request),
            timeout=max(1, math.ceil(seconds)),
            result_received_cb=keep,
        )
        self._tasks.append(task)
        names = [str(node) for node in nodes]
        self.controller.broadcast(
            task=task, fl_ctx=self.controller.fl_ctx, targets=names, min_responses=len(names)
        )
        return {f"{number}/{name}": name for name in names}

    def pull(self, tickets: Sequence[str]) -> Iterable[tuple[str, Shareable]]:
        """Results that have come, each once."""
        with self._lock:
            return [(ticket, self._results.pop(ticket)) for ticket in tickets if ticket in self._results]

    def lost(self, reply: Shareable) -> bool:
        """NVFlare does not tell whether a site took a task."""
        return False

    def read(self, reply: Shareable) -> bytes | Failure:
        """The answer's bytes, or why there is none."""
        return wire.read(reply)

    def close(self) -> None:
        """Take back what nobody answered, so that a site does not answer it later."""
        for task in self._tasks:
            if task.completion_status is None:
                self.controller.cancel_task(task)
