"""A warm process that forks one child for every run of the command line, and breaks it as told.

Starting Python and loading the libraries takes seconds; forking takes milliseconds. The server imports
everything, starts no thread (a fork would lose it), and then answers requests: one JSON line in, one out.

A *step* is an operation that changes the disk, or decides when a change is safe there: a file opened for
writing, renamed, removed or made, its mode changed, a flush to the disk, a statement of the ledger's
database. Steps are seen through Python's audit events, so the product needs no hook and cannot forget one.
"""

from __future__ import annotations

import errno
import fcntl
import importlib
import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

#: Loaded before the first fork. None of them starts a thread on import; the server checks.
MODULES = (
    "fedwise.cli.main", "fedwise.pool.pool", "fedwise.owner.release", "fedwise.search", "fedwise.forecasting",
    "fedwise.owner.ledger", "fedwise.training.run", "fedwise.training.comparison", "fedwise.training.cached",
    "fedwise.training.federation", "fedwise.training.samplers", "fedwise.training.strategies",
    "fedwise.training.kernels",
    "polars", "scipy.stats", "safetensors.numpy", "rich.progress", "rich.table", "opendp.prelude",
)  # fmt: skip
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
#: Audit events that change the disk. Renaming is one event for os.rename and os.replace.
_CHANGES = (
    "os.rename",
    "os.remove",
    "os.mkdir",
    "os.rmdir",
    "os.chmod",
    "os.truncate",
    "os.link",
    "os.symlink",
)

#: The words of SQLite for a full disk and for a read-only one.
_SQLITE_SAYS = {errno.ENOSPC: "database or disk is full", errno.EROFS: "attempt to write a readonly database"}


@dataclass(frozen=True)
class Job:
    """One run of the command line, and what befalls it."""

    words: Sequence[str]
    folder: str
    #: Die by SIGKILL before this step (counted from 0); -1 lives.
    kill_at: int = -1
    #: Fail with this errno from this step on.
    fail_at: int = -1
    fail_errno: int = 0
    #: Whether only that one step fails.
    fail_once: bool = False
    #: No file may grow past this many bytes: the write stops there, and the process dies or gets an error.
    largest: int = -1
    largest_kills: bool = False
    #: SIGKILL from outside after so many seconds.
    kill_after: float = -1.0
    #: Seconds since 1970 the ledger's clock shows; 0 leaves it alone.
    clock: float = 0.0
    #: Break the product on purpose (see `SABOTAGE`), to prove that the checks can fail.
    sabotage: str = ""


@dataclass
class Outcome:
    """How a run ended."""

    code: int
    signal: int
    out: str
    err: str
    seconds: float
    #: Steps taken, in words; known only when the process ended on its own.
    steps: list[str] = field(default_factory=list)


class ForkServer:
    """The client's side: start the server, send jobs, read outcomes."""

    def __init__(self, folder: Path, releases: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._log = (folder / "server.err").open("w+")
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(releases)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "COLUMNS": "200"},
        )  # fmt: skip

    def run(self, *jobs: Job) -> list[Outcome]:
        """Run jobs at the same time; returns when all have ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([asdict(job) for job in jobs]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            raise RuntimeError(f"the fork server died: {self._log.read()[-2000:]}")
        return [Outcome(**found) for found in json.loads(line)]

    def one(self, words: Sequence[object], folder: Path, **faults: Any) -> Outcome:
        """Run one command in `folder`."""
        return self.run(Job([str(word) for word in words], str(folder), **faults))[0]

    def close(self) -> None:
        """End the server; it has no children between requests."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(timeout=60)
        self._log.close()


class _Faults:
    """Counts steps in a child and strikes at the one asked for."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.steps: list[str] = []
        self._lock = threading.Lock()

    def arm(self) -> None:
        real_fsync = os.fsync

        def fsync(descriptor: int) -> None:
            self.step("fsync", OSError)
            real_fsync(descriptor)

        os.fsync = fsync
        real_connect = sqlite3.connect
        step = self.step

        class Watched(sqlite3.Connection):
            def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
                step(f"sql {' '.join(sql.split()[:2])}", sqlite3.OperationalError)
                return super().execute(sql, *arguments)

        sqlite3.connect = lambda *args, **options: real_connect(*args, factory=Watched, **options)
        # The moment after which something about the data may leave: the charge must be in the book by then.
        module = importlib.import_module("fedwise.owner.release")
        add_noise = module.add_noise

        def noise(*arguments: Any) -> Any:
            self.step("noise", OSError)
            return add_noise(*arguments)

        module.add_noise = noise
        sys.addaudithook(self._audit)
        if self.job.largest >= 0:
            kind = signal.SIG_DFL if self.job.largest_kills else signal.SIG_IGN
            signal.signal(signal.SIGXFSZ, kind)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.job.largest, self.job.largest))

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & _WRITES and not str(path).startswith("/dev/"):
                self.step(f"open {_name(path)}", OSError)
        elif event in _CHANGES:
            self.step(f"{event.removeprefix('os.')} {_name(arguments[0])}", OSError)

    def step(self, what: str, error: Callable[..., Exception]) -> None:
        with self._lock:
            number = len(self.steps)
            self.steps.append(what)
        job = self.job
        if number == job.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if job.fail_at >= 0 and (number == job.fail_at or (number > job.fail_at and not job.fail_once)):
            self._fail(what, error)

    def _fail(self, what: str, error: Callable[..., Exception]) -> None:
        """The error this step would meet: a full disk still lets one look, remove and change modes."""
        number = self.job.fail_errno
        verb = what.removeprefix("sql ").split()[0]
        if number == errno.ENOSPC and verb in (
            "remove",
            "chmod",
            "rmdir",
            "SELECT",
            "PRAGMA",
            "BEGIN",
            "ROLLBACK",
        ):
            return
        if number == errno.EROFS and verb in ("SELECT", "PRAGMA", "ROLLBACK"):
            return
        if verb == "noise":
            return
        if error is OSError:
            raise OSError(number, os.strerror(number))
        raise error(
            {errno.ENOSPC: "database or disk is full", errno.EROFS: "attempt to write a readonly database"}[
                number
            ]
        )


def _name(path: object) -> str:
    """The last part of a path without its random letters."""
    name = (
        os.path.basename(os.fsdecode(path)) if isinstance(path, str | bytes | os.PathLike) else "descriptor"
    )
    return ".".join(name.split(".")[:-2]) + ".part" if name.endswith(".part") else name


def _child(job: Job, pipes: Sequence[int]) -> None:
    """Run the command line as the console script does; never returns."""
    code = 1
    os.dup2(pipes[0], 1)
    os.dup2(pipes[1], 2)
    os.chdir(job.folder)
    sys.argv = ["fedwise", *job.words]
    if job.clock:
        _set_clock(job.clock)
    if job.sabotage:
        SABOTAGE[job.sabotage]()
    faults = _Faults(job)
    faults.arm()
    try:
        importlib.import_module("fedwise.cli.main").main()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(bool(stop.code))
    except BaseException:
        traceback.print_exc()
    steps = list(faults.steps)
    sys.stdout.flush()
    sys.stderr.flush()
    os.write(pipes[2], json.dumps(steps).encode())
    os._exit(code)


def _set_clock(seconds: float) -> None:
    ledger = importlib.import_module("fedwise.owner.ledger")
    real = ledger.datetime

    class Stopped(real):  # type: ignore[misc, valid-type]
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return real.fromtimestamp(seconds, tz)

    ledger.datetime = Stopped


def _write_in_place() -> None:
    """Files are written where they will be read."""

    def write(path: Path, data: bytes, **_: Any) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    for name in (
        "fedwise.files",
        "fedwise.owner.release",
        "fedwise.search.selection",
        "fedwise.training.run",
    ):
        importlib.import_module(name).write_new = write


def _charge_late() -> None:
    """The ledger is charged when the release is on disk."""
    ledger = importlib.import_module("fedwise.owner.ledger").Ledger
    release = importlib.import_module("fedwise.owner.release").Release
    charge, save, late = ledger.charge, release.save, []

    def remember(*arguments: Any, **fields: Any) -> None:
        late.append((arguments, fields))

    def save_then_charge(self: Any, *arguments: Any, **fields: Any) -> None:
        save(self, *arguments, **fields)
        for given, named in late:
            charge(*given, **named)

    ledger.charge, release.save = remember, save_then_charge


#: Ways to break the product that the checks must notice.
SABOTAGE: dict[str, Callable[[], None]] = {"write in place": _write_in_place, "charge late": _charge_late}


def _answer(jobs: list[Job]) -> list[Outcome]:
    begun = time.monotonic()
    waiting: dict[int, int] = {}
    ends: dict[int, list[int]] = {}
    for number, job in enumerate(jobs):
        # Pipes, because a limit on file sizes must not touch what the process says. Nobody reads until it
        # ends: they are made large enough.
        pipes = [os.pipe() for _ in range(3)]
        for _, write in pipes:
            fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 1 << 20)
        pid = os.fork()
        if pid == 0:
            _child(job, [write for _, write in pipes])
        for _, write in pipes:
            os.close(write)
        waiting[pid] = number
        ends[number] = [read for read, _ in pipes]
    killers = {pid: begun + jobs[n].kill_after for pid, n in waiting.items() if jobs[n].kill_after >= 0}
    found: dict[int, Outcome] = {}
    while waiting:
        for pid, when in list(killers.items()):
            if time.monotonic() >= when:
                os.kill(pid, signal.SIGKILL)
                del killers[pid]
        pid, status = os.waitpid(-1, os.WNOHANG if killers else 0)
        if pid == 0:
            time.sleep(0.0005)
            continue
        killers.pop(pid, None)
        number = waiting.pop(pid)
        code = os.waitstatus_to_exitcode(status)
        texts = [_drain(read) for read in ends[number]]
        found[number] = Outcome(
            code=max(code, 0),
            signal=max(-code, 0),
            out=texts[0],
            err=texts[1],
            seconds=time.monotonic() - begun,
            steps=json.loads(texts[2]) if texts[2] else [],
        )
    return [found[number] for number in range(len(jobs))]


def _drain(read: int) -> str:
    """What is in a pipe. Its other end may still be open in a child of a killed process: no waiting."""
    os.set_blocking(read, False)
    parts = []
    with open(read, "rb", buffering=0) as pipe:
        while part := pipe.read(1 << 20):
            parts.append(part)
    return b"".join(parts).decode(errors="replace")


def _warm(releases: str) -> None:
    """Load the compiled kernels of counting and searching once for all children."""
    fedwise = importlib.import_module("fedwise")
    fedwise.select(fedwise.Pool.load(releases), 2, threads=1)


def _serve(releases: str) -> None:
    for name in MODULES:
        importlib.import_module(name)
    _warm(releases)
    assert threading.active_count() == 1, "a library started a thread: forks would hang"
    for line in sys.stdin:
        jobs = [Job(**fields) for fields in json.loads(line)]
        answer = _answer(jobs)
        sys.stdout.write(json.dumps([asdict(outcome) for outcome in answer]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve(sys.argv[1])
