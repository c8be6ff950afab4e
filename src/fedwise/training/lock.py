"""Lock: one process at a time in a run directory."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import FedwiseError

if sys.platform != "win32":
    import fcntl


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep other processes out of `folder`, which is made when absent.

    The lock is on the directory itself: it leaves no file, and the system lets go of it when the process
    ends, however it ends. Windows cannot lock a directory; there, two runs in one are the user's to avoid.

    Raises
    ------
    FedwiseError
        Another process is at work there, or the directory cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY) if sys.platform != "win32" else -1
    except OSError as cause:
        raise FedwiseError(
            f"run directory '{folder}' cannot be used ({cause.strerror}); choose another with -o"
        ) from None
    if sys.platform == "win32":
        yield
        return
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FedwiseError(
                f"run directory '{folder}' is in use by another process; wait for it, or choose another with -o"
            ) from None
        except OSError:
            pass  # a network file system without locks: go on as if alone
        yield
    finally:
        os.close(handle)
