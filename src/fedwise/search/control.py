"""Control: threads, progress and Ctrl-C for a search."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import TypeVar

T = TypeVar("T")

#: Called with evaluations done, evaluations expected, and the best loss so far.
Progress = Callable[[int, int, float], None]

#: How often progress is shown and Ctrl-C is looked for, in seconds.
_TICK = 0.1


class Control:
    """Runs a search beside the caller's thread, so that Ctrl-C ends it with the best found so far.

    The work is cut into slices whose boundaries do not depend on time or on the number of threads:
    the same seed gives the same answer on one or two. Between slices a worker asks `stopped`.

    Parameters
    ----------
    threads
        Workers for independent slices; default the number of cores this process may use.
    progress
        Called from the caller's thread about ten times a second. It may raise KeyboardInterrupt to
        stop the search, as a cancel button does.
    """

    def __init__(self, *, threads: int | None = None, progress: Progress | None = None) -> None:
        self.threads = max(1, threads or cores())
        self.progress = progress
        self.interrupted = False
        self.done = 0
        self.total = 0
        self.best = math.inf
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._workers = ThreadPoolExecutor(self.threads, thread_name_prefix="fedwise-search")

    def __enter__(self) -> Control:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._workers.shutdown(wait=True)

    def stopped(self) -> bool:
        """Whether to give up and return the best so far."""
        return self._stop.is_set()

    def expect(self, evaluations: int) -> None:
        """Add to the evaluations announced as the total."""
        with self._lock:
            self.total += evaluations

    def report(self, evaluations: int, best: float) -> None:
        """Count evaluations and note a loss."""
        with self._lock:
            self.done += evaluations
            self.best = min(self.best, best)

    def map(self, work: Callable[[int], T], items: Sequence[int]) -> list[T]:
        """Apply `work` to every item on the workers; answers come in the items' order."""
        if self.threads == 1 or len(items) <= 1:
            return [work(item) for item in items]
        return list(self._workers.map(work, items))

    def alone(self) -> Control:
        """The same search on one thread: for work that is itself an item of `map`, which must not wait for workers."""
        return _Alone(self)

    def run(self, search: Callable[[], T]) -> T:
        """Run the whole search on a thread of its own and wait for it, showing progress.

        Only the caller's thread ever receives KeyboardInterrupt. The first one asks the search to
        stop and its partial answer is returned; a second one is raised.
        """
        with ThreadPoolExecutor(1, thread_name_prefix="fedwise-conductor") as conductor:
            future: Future[T] = conductor.submit(search)
            shown = time.monotonic()
            while True:
                try:
                    finished = wait([future], timeout=_TICK).done
                    if finished or time.monotonic() - shown >= _TICK:
                        shown = time.monotonic()
                        self._show()
                    if finished:
                        return future.result()
                except KeyboardInterrupt:
                    self._stop.set()
                    if self.interrupted:
                        raise
                    self.interrupted = True
                except BaseException:
                    self._stop.set()
                    raise

    def _show(self) -> None:
        """Tell progress; a cancel button that raises again and again counts once."""
        if self.progress is None:
            return
        try:
            self.progress(self.done, max(self.total, self.done), self.best)
        except KeyboardInterrupt:
            self.progress = None
            self.interrupted = True
            self._stop.set()


class _Alone(Control):
    """One thread of another control, to which it reports and with which it stops."""

    def __init__(self, whole: Control) -> None:
        super().__init__(threads=1)
        self.whole = whole

    def stopped(self) -> bool:
        return self.whole.stopped()

    def expect(self, evaluations: int) -> None:
        self.whole.expect(evaluations)

    def report(self, evaluations: int, best: float) -> None:
        self.whole.report(evaluations, best)


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
