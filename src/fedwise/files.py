"""Files: reading untrusted JSON and writing whole files or none."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TypeVar

import msgspec

from .errors import FedwiseError

T = TypeVar("T")

#: Largest file any reader takes into memory.
MAX_BYTES = 256 * 1024 * 1024


def read_bytes(path: Path, *, what: str, error: type[FedwiseError]) -> bytes:
    """Contents of a regular file of sane size, or `error` naming it."""
    try:
        if path.is_dir():
            raise error(f"{what} '{path}' is a directory; name a file")
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise error(f"{what} '{path}' must be at most {MAX_BYTES >> 20} MB, got {size >> 20} MB")
        if not path.is_file():
            raise error(f"{what} '{path}' is not a regular file; name a file")
        return path.read_bytes()
    except FileNotFoundError:
        raise error(f"{what} '{path}' does not exist; check the path") from None
    except OSError as cause:
        raise error(f"{what} '{path}' cannot be read ({cause.strerror}); check its permissions") from None


def decode(data: bytes, kind: type[T], *, what: str, error: type[FedwiseError]) -> T:
    """Strict, typed JSON: unknown keys, wrong types and nonsense numbers are refused."""
    if not data.strip():
        raise error(f"{what} is empty; ask for a new copy")
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as cause:
        reason = str(cause).replace("`", "'")
        # The file's maker chooses part of this text (an unknown key): one line, of sane length.
        reason = "".join(c if c.isprintable() else "?" for c in reason[:300])
        raise error(f"{what} is not valid: {reason}") from None


def write_new(
    path: Path, data: bytes, *, force: bool = False, error: type[FedwiseError] = FedwiseError
) -> None:
    """Write a file whole: a reader sees the old file, the new one, or none, never half of one.

    Raises
    ------
    error
        The file exists and `force` is not set, or it cannot be written.
    """
    refuse_existing(path, force=force, error=error)
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name[:40]}.", suffix=".part", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except OSError as cause:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise error(
            f"'{path}' cannot be written ({cause.strerror}); check the directory and free space"
        ) from None
    except BaseException:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    """The process's file mode mask; it can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def refuse_existing(path: Path, *, force: bool, error: type[FedwiseError] = FedwiseError) -> None:
    """Stop before any work when the output is already there, or has no place to go."""
    try:
        if path.is_dir():
            raise error(f"output '{path}' is a directory; name a file")
        if (path.exists() or path.is_symlink()) and not force:
            raise error(f"output '{path}' exists; choose another name or pass --force")
        above = next(parent for parent in path.absolute().parents if parent.exists())
        if not (above.is_dir() and os.access(above, os.W_OK)):
            raise error(f"output '{path}' cannot be written into '{above}'; choose another directory")
    except OSError as cause:
        raise error(f"output '{path}' cannot be written ({cause.strerror}); choose another name") from None
