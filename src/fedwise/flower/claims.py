"""Claims: the steps of a session are taken in order and once each, whatever Flower's memory of them says.

Flower hands each message a copy of the node's state and stores it back after the reply. A server that sends
two messages at once may get both answered from the same copy. Here a session is a file named after its next
step, and taking that step renames the file: of several processes one can, the others are refused.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import tempfile
import time
from pathlib import Path

from ..errors import FedwiseError

#: Seconds after which a session that was left alone is forgotten, and can no longer go on.
_AGE = 86_400.0


def begin(step: str, *, folder: Path | None = None) -> str:
    """Begin a session; returns its name.

    Parameters
    ----------
    step
        Name of the first step.
    folder
        Where sessions are kept. Default: a private folder of this user among the temporary files.

    Raises
    ------
    FedwiseError
        Nothing can be written, or others may write there.
    """
    place, name = _folder() if folder is None else folder, secrets.token_hex(16)
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = place.lstat()
        if hasattr(os, "getuid") and (found.st_uid != os.getuid() or found.st_mode & 0o077):
            raise FedwiseError(f"folder '{place}' must be private to this user; remove it")
        _forget(place)
        os.close(os.open(place / f"{name}.{step}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError:
        raise FedwiseError(f"folder '{place}' must be writable; make room, or set TMPDIR") from None
    return name


def advance(name: str, step: str, following: str | None = None, *, folder: Path | None = None) -> None:
    """Take a step of a session, after which the `following` one may be taken; None ends the session.

    Raises
    ------
    FedwiseError
        The step was taken before, or is not the next.
    """
    place = _folder() if folder is None else folder
    try:
        if following is None:
            (place / f"{name}.{step}").unlink()
        else:
            (place / f"{name}.{step}").rename(place / f"{name}.{following}")
    except OSError:
        raise FedwiseError("secure aggregation takes every step once; restart the round") from None


def _folder() -> Path:
    user = os.getuid() if hasattr(os, "getuid") else getpass.getuser()
    return Path(tempfile.gettempdir()) / f"fedwise-sessions-{user}"


def _forget(place: Path) -> None:
    """Remove sessions nobody came back to. Removing is always safe: a session without its file is refused."""
    limit = time.time() - _AGE
    for path in place.iterdir():
        with contextlib.suppress(OSError):
            if path.lstat().st_mtime < limit:
                path.unlink()
