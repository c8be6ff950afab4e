"""Lock: one process at a time in a run directory."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from ..errors import FedwiseError

#: The file that is locked. It stays: removing it would let two processes lock two files of one name.
NAME = ".lock"
#: What a network file system without locks answers.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep other processes out of `folder`, which is made when absent.

    The system lets go of the lock when the process ends, however it ends. On a file system that has no locks
    nobody is kept out.

    Raises
    ------
    FedwiseError
        Another process is at work there, or the directory cannot be made.
    """
    lock = FileLock(folder / NAME)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout:
        raise FedwiseError(
            f"run directory '{folder}' is in use by another process; wait for it, or choose another with -o"
        ) from None
    except OSError as cause:
        if cause.errno not in _NO_LOCKS:
            raise FedwiseError(
                f"run directory '{folder}' cannot be used ({cause.strerror}); choose another with -o"
            ) from None
    try:
        yield
    finally:
        lock.release()
