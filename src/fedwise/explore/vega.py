"""Vega: the script that draws the explorer's charts, bundled from an installed package."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import ClassVar

from ..errors import MissingExtra
from ..view.draw import VERSION


class Vega:
    """The JavaScript of Vega, Vega-Lite and Vega-Embed, bundled from the installed package.

    Bundling takes seconds and holds the interpreter, so a process of its own does it while the pool is read.
    """

    #: Made once for the whole process.
    _ready: ClassVar[bytes] = b""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        if not Vega._ready:
            program = "import sys, vl_convert; sys.stdout.write(vl_convert.javascript_bundle(vl_version=sys.argv[1]))"
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", program, VERSION], stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )

    def bundle(self) -> bytes:
        """The script; waits until it is ready.

        Raises
        ------
        MissingExtra
            ``vl-convert-python`` is not installed.
        """
        with self._lock:
            if self._process is not None:
                made, _ = self._process.communicate()
                self._process = None
                Vega._ready = made or Vega._ready
        if not Vega._ready:
            raise MissingExtra("the explorer's charts", "explore")
        return Vega._ready

    def close(self) -> None:
        """Stop bundling if it still runs."""
        process = self._process
        if process is not None and process.poll() is None:
            process.kill()
        with self._lock:
            if self._process is not None:
                self._process.communicate()
                self._process = None
