"""Real Flower processes for end-to-end tests: started in groups of their own, always killed, never told on."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

BIN = Path(sys.executable).parent


def environment(home: Path) -> dict[str, str]:
    """Flower without telemetry, in a home of its own."""
    home.mkdir(parents=True, exist_ok=True)
    return {
        **os.environ,
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "NO_COLOR": "1",
        "PYTHONUNBUFFERED": "1",
    }


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on at the moment."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Process:
    """A command in a process group of its own, with its output in a file."""

    def __init__(self, command: list[str], log: Path, *, env: dict[str, str], cwd: Path) -> None:
        self.log = log
        with log.open("wb") as file:
            self.popen = subprocess.Popen(
                command, stdout=file, stderr=subprocess.STDOUT, env=env, cwd=cwd, start_new_session=True
            )

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def running(self) -> bool:
        return self.popen.poll() is None

    def kill(self) -> None:
        """SIGKILL to the whole group: what a power cut looks like."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait(30)


def wait_for(what: str, ready: Callable[[], bool], *, seconds: float = 400.0, pause: float = 0.1) -> None:
    """Poll until `ready()`, or fail saying what did not happen."""
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not happen within {seconds:g} s")
        time.sleep(pause)


def listening(port: int) -> bool:
    """Whether somebody accepts connections."""
    with socket.socket() as one:
        one.settimeout(1)
        return one.connect_ex(("127.0.0.1", port)) == 0


class Run:
    """``flwr run … --stream``, read line by line while it goes."""

    def __init__(self, command: list[str], *, env: dict[str, str], cwd: Path) -> None:
        self.popen = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=env,
            cwd=cwd,
            start_new_session=True,
            text=True,
            errors="replace",
        )
        self.lines: list[str] = []
        self._queue: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self._queue.put(line.rstrip("\n"))
        self.popen.stdout.close()
        self._queue.put(None)

    def until(self, text: str | None, *, seconds: float = 500.0) -> None:
        """Read until a line holds `text`, or to the end of the run for None."""
        end = time.monotonic() + seconds
        while True:
            try:
                line = self._queue.get(timeout=max(end - time.monotonic(), 0.01))
            except queue.Empty:
                raise AssertionError(f"no {text!r} within {seconds:g} s; so far:\n" + self.text) from None
            if line is None:
                self.popen.wait(30)
                assert text is None, f"the run ended without {text!r}:\n" + self.text
                return
            self.lines.append(line)
            if text is not None and text in line:
                return

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait(30)
