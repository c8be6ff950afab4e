"""Cached: many trainings in processes of their own, each kept as a file named by everything that decides it.

The key of a training is a hash of its rows, the public schema, the configuration (seed included) and the
federation. Run again after a stop, with more jobs or in another order, and only what is new is trained.
"""

from __future__ import annotations

import hashlib
import io
import multiprocessing as mp
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import polars as pl

from ..errors import FedwiseError
from ..files import write_new
from .encoding import Rows
from .federation import Prepared
from .records import to_frame
from .simulate import Config, simulate

#: Part of every key: raise it when training itself changes its numbers.
_EPOCH = "fedwise/cached/1"


class Job(NamedTuple):
    """One training: who trains, and how. The name of the federation is for readers and decides nothing."""

    members: tuple[str, ...]
    config: Config
    federation: str = ""


class Cache:
    """A directory of finished trainings.

    Parameters
    ----------
    folder
        Made when the first training is done.
    prepared
        The data every key depends on; each client is hashed once.
    """

    def __init__(self, folder: str | Path, prepared: Prepared) -> None:
        self.folder = Path(folder)
        self.prepared = prepared
        self._train: Mapping[str, str] = {client: _digest(rows) for client, rows in prepared.train.items()}
        tested = "".join(f"{client}\0{_digest(rows)}\0" for client, rows in prepared.test.items())
        encoder = prepared.encoder
        self._common = f"{_EPOCH}\0{encoder.schema.digest}\0{encoder.use_sensitive}\0{tested}"

    def key(self, job: Job) -> str:
        """SHA-256 over data, schema, configuration and federation."""
        members = self.prepared.check(job.members)
        digest = hashlib.sha256(self._common.encode())
        plain = msgspec.to_builtins(job.config)
        if job.config.privacy is None:
            del plain["simulated"]  # says nothing here, and caches older than this field are still found
        digest.update(msgspec.json.encode(plain))
        for client in members:
            digest.update(f"\0{client}\0{self._train[client]}".encode())
        return digest.hexdigest()

    def path(self, job: Job) -> Path:
        """The file of a training, whether it is there or not."""
        return self.folder / f"{self.key(job)[:40]}.parquet"

    def load(self, job: Job) -> pl.DataFrame | None:
        """The records of a finished training; ``None`` where there is none, or only a damaged or older file.

        Version 0.1.0 recorded fewer metrics; such trainings are repeated, for a comparison needs all of them.
        """
        path = self.path(job)
        if not path.is_file():
            return None
        try:
            found = pl.read_parquet(path)
            complete = {"brier", "rmse"} & set(found.get_column("metric"))
            return found if complete else None
        except (pl.exceptions.PolarsError, OSError):
            return None

    def store(self, job: Job, table: pl.DataFrame) -> None:
        """Keep the records: the whole file or none."""
        buffer = io.BytesIO()
        table.write_parquet(buffer)
        write_new(self.path(job), buffer.getvalue(), force=True)


def train_all(
    prepared: Prepared,
    work: Sequence[Job],
    *,
    cache: Cache | None,
    workers: int = 2,
    on_done: Callable[[int, pl.DataFrame, bool], None] | None = None,
) -> list[pl.DataFrame]:
    """Records of every training, from the cache where they are there.

    Parameters
    ----------
    cache
        Where finished trainings are kept; ``None`` keeps none, and a stopped run starts again.
    workers
        Processes; 1 trains in this one.
    on_done
        Called with the position of a training, its records, and whether they came from the cache.

    Returns
    -------
    tables
        Columns of `fedwise.training.records.Record`, in the order of `work`.

    Raises
    ------
    KeyboardInterrupt
        After Ctrl-C, once the workers are gone; finished trainings are in the cache.
    FedwiseError
        A worker died.
    """
    found: dict[int, pl.DataFrame] = {}
    waiting: dict[str, list[int]] = {}
    for i, job in enumerate(work):
        table = cache.load(job) if cache is not None else None
        if table is None:
            waiting.setdefault(str(i) if cache is None else cache.key(job), []).append(i)
        else:
            found[i] = table
            if on_done:
                on_done(i, table, True)

    def finish(places: list[int], table: pl.DataFrame) -> None:
        if cache is not None:
            cache.store(work[places[0]], table)
        for i in places:
            found[i] = table
            if on_done:
                on_done(i, table, False)

    if workers <= 1 or len(waiting) <= 1:
        for places in waiting.values():
            finish(places, _run(prepared, work[places[0]]))
    else:
        _parallel(prepared, work, list(waiting.values()), min(workers, len(waiting)), finish)
    return [found[i] for i in range(len(work))]


def _parallel(
    prepared: Prepared,
    work: Sequence[Job],
    waiting: list[list[int]],
    workers: int,
    finish: Callable[[list[int], pl.DataFrame], None],
) -> None:
    """Train in processes of their own.

    A worker hands its records over in a file: one that is killed while it sends them through the pool's pipe
    would leave half a message there, and the parent waiting for the rest for ever.
    """
    before = set(mp.active_children())
    outbox = tempfile.TemporaryDirectory(prefix="fedwise-", ignore_cleanup_errors=True)
    pool = ProcessPoolExecutor(
        workers, mp_context=mp.get_context("spawn"), initializer=_begin, initargs=(prepared,)
    )
    try:
        futures = {}
        with _unheard():
            for places in waiting:
                path = Path(outbox.name) / f"{places[0]}.parquet"
                futures[pool.submit(_work, work[places[0]], path)] = places, path
        for done in as_completed(futures):
            done.result()
            places, path = futures[done]
            finish(places, pl.read_parquet(path))
    except BrokenProcessPool:
        raise FedwiseError(
            "a training process died, perhaps for lack of memory; trainings in a --cache are kept: run again, "
            "with fewer --workers"
        ) from None
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in set(mp.active_children()) - before:
            child.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        outbox.cleanup()


@contextmanager
def _unheard() -> Iterator[None]:
    """Workers that start here do not hear Ctrl-C before they can answer it: one that did would print a traceback."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


_SHARED: list[Prepared] = []


def _begin(prepared: Prepared) -> None:
    """Start of a worker: the data arrives once, one core each, and Ctrl-C ends it without a word."""
    os.environ["OMP_NUM_THREADS"] = "1"
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    threading.Thread(target=_follow, daemon=True).start()
    _SHARED[:] = [prepared]


def _follow() -> None:
    """End when the parent does: a killed parent cannot tell its workers, which would wait for ever."""
    parent = mp.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(job: Job, path: Path) -> None:
    try:
        _run(_SHARED[0], job).write_parquet(path)
    except OSError as cause:
        raise FedwiseError(
            f"'{path.parent}' cannot be written ({cause.strerror}); free space, or set TMPDIR to another directory"
        ) from None


def _run(prepared: Prepared, job: Job) -> pl.DataFrame:
    return to_frame(simulate(prepared, job.members, job.config).records)


def _digest(rows: Rows) -> str:
    digest = hashlib.sha256(f"{rows.width}\0".encode())
    for array in (rows.hot, rows.dense, rows.dense_at, rows.y, rows.groups):
        digest.update(f"{array.shape}{array.dtype}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
