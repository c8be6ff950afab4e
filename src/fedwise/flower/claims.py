"""Claims: a step that a node takes once, whatever Flower's memory of it says.

Flower hands each message a copy of the node's state and stores it back after the reply. A server that sends
two messages at once may get both answered from the same copy. A file that only one process can create
decides which of them goes first; the other is refused.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import shutil
import tempfile
import time
from pathlib import Path

from ..errors import FedwiseError

_DAY = 86_400


def new_session(*, now: float | None = None) -> str:
    """A random name that begins with the day, so that old claims can be forgotten."""
    return f"{_today(now)}.{secrets.token_hex(16)}"


def claim(session: str, step: str, *, folder: Path | None = None, now: float | None = None) -> None:
    """Take one step of a session, once.

    Parameters
    ----------
    session
        From `new_session`, at most a day old.
    step
        Name of the step.
    folder
        Where claims are kept. Default: a private folder of this user among the temporary files.

    Raises
    ------
    FedwiseError
        The step was taken before, the session is too old, or nothing can be written.
    """
    day, today = int(session.split(".")[0]), _today(now)
    if not today - 1 <= day <= today:
        raise FedwiseError("secure aggregation must end within a day; restart the round")
    place = _default_folder() if folder is None else folder
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Whoever else may write there could delete claims.
        found = place.lstat()
        if hasattr(os, "getuid") and (found.st_uid != os.getuid() or found.st_mode & 0o077):
            raise FedwiseError(f"folder '{place}' must be private to this user; remove it")
        if not (place / str(day)).exists():
            (place / str(day)).mkdir(mode=0o700, exist_ok=True)
            _forget(place, before=today - 1)
        os.close(os.open(place / str(day) / f"{session}.{step}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        raise FedwiseError("secure aggregation takes every step once; restart the round") from None
    except OSError:
        raise FedwiseError(f"folder '{place}' must be writable; make room, or set TMPDIR") from None


def _default_folder() -> Path:
    user = os.getuid() if hasattr(os, "getuid") else getpass.getuser()
    return Path(tempfile.gettempdir()) / f"fedwise-claims-{user}"


def _today(now: float | None) -> int:
    return int((time.time() if now is None else now) // _DAY)


def _forget(place: Path, *, before: int) -> None:
    with contextlib.suppress(OSError):
        for entry in place.iterdir():
            if entry.name.isdigit() and int(entry.name) < before:
                shutil.rmtree(entry, ignore_errors=True)
