"""Files: reading untrusted JSON and TOML, and writing whole files or none."""

from __future__ import annotations

import io
import os
import re
import tempfile
import threading
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import tomli_w

from .errors import FedwiseError

if TYPE_CHECKING:
    import polars as pl

T = TypeVar("T")

#: A list as tomli-w writes it, an item a line. Line breaks inside text are escaped, so these are all there are.
_LONG_LIST = re.compile(r"^(.* = \[)\n((?:.*,\n)+)\]$", re.MULTILINE)

#: Largest file any reader takes into memory. The largest honest release (2,000,000 cells) has 34 MB.
MAX_BYTES = 40 * 1024 * 1024
#: Most items in all lists and objects of a JSON file: as Python objects they take far more room than as text.
MAX_ITEMS = 4_000_000
#: Largest TOML text: people write it, and its parser is slow.
MAX_TOML = 4 * 1024 * 1024
#: A dotted key of more than 8 parts: the parser's time grows with the square of their number.
_LONG_KEY = re.compile(
    r"""(?:^|[\[{,])[ \t]*(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){8}""", re.MULTILINE | re.ASCII
)

#: The mask belongs to the process: two threads that read it at once would leave it changed.
_MASK = threading.Lock()


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
    except ValueError:
        raise error(f"{what} {str(path)!r} is no possible file name; check the path") from None


def decode(data: bytes, kind: type[T], *, what: str, error: type[FedwiseError]) -> T:
    """Strict, typed JSON: unknown keys, wrong types and nonsense numbers are refused."""
    if not data.strip():
        raise error(f"{what} is empty; ask for a new copy")
    if len(data) > MAX_BYTES or data.count(b",") > MAX_ITEMS:
        raise error(
            f"{what} must have at most {MAX_BYTES >> 20} MB and {MAX_ITEMS} items; it is no file of fedwise"
        )
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, FedwiseError) as cause:
        raise error(f"{what} is not valid: {shorten(str(cause))}") from None


def parse_toml(text: str, *, what: str, error: type[FedwiseError]) -> dict[str, Any]:
    """TOML that people wrote, or `error`: also where the parser itself would fall over or take for ever."""
    if len(text) > MAX_TOML:
        raise error(f"{what} must be at most {MAX_TOML >> 20} MB of TOML, got {len(text) >> 20} MB")
    if _LONG_KEY.search(text):
        raise error(f"{what} is not valid: it has a dotted key of more than 8 parts")
    try:
        return tomllib.loads(text)
    # Besides its own error the parser lets those of int() through, for numbers of thousands of digits.
    except (ValueError, RecursionError) as cause:
        raise error(f"{what} is not valid TOML: {shorten(str(cause))}") from None


def format_toml(tree: Mapping[str, Any]) -> str:
    """TOML text of a tree of plain values, each list on one line, as a person would write it."""
    text = tomli_w.dumps(tree, indent=0)
    return _LONG_LIST.sub(lambda found: found[1] + found[2].strip(",\n").replace(",\n", ", ") + "]", text)


def shorten(text: str) -> str:
    """One printable line of sane length: the maker of a file chooses part of many messages."""
    return "".join(c if c.isprintable() else "?" for c in text[:300].replace("`", "'"))


def write_new(
    path: Path,
    data: bytes,
    *,
    force: bool = False,
    error: type[FedwiseError] = FedwiseError,
    mode: int | None = None,
) -> None:
    """Write a file whole: a reader sees the old file, the new one, or none, never half of one.

    Its permissions are `mode`, or those of any new file of this process.

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
        os.chmod(temporary, file_mode() if mode is None else mode)
        if not force and linked(temporary, path):
            discard(temporary)
        else:
            os.replace(temporary, path)
    except OSError as cause:
        if temporary is not None:
            discard(temporary)
        if isinstance(cause, FileExistsError):
            raise error(f"output '{path}' exists; choose another name or pass --force") from None
        raise error(
            f"'{path}' cannot be written ({cause.strerror}); check the directory and free space"
        ) from None
    except BaseException:
        if temporary is not None:
            discard(temporary)
        raise


def write_table(path: Path, table: pl.DataFrame, *, force: bool = False) -> None:
    """Write a table whole, as CSV where the name ends so, else as Parquet."""
    buffer = io.BytesIO()
    if path.suffix.lower() == ".csv":
        table.write_csv(buffer)
    else:
        table.write_parquet(buffer)
    write_new(path, buffer.getvalue(), force=force)


def check_room(path: Path, size: int, *, error: type[FedwiseError] = FedwiseError) -> None:
    """Write and remove a file of this size beside `path`, or raise `error`, so that a full disk is found now."""
    trial = path.with_name(f".{path.name[:40]}.trial")
    write_new(trial, bytes(size), force=True, error=error)
    discard(trial)


def linked(temporary: str, path: Path) -> bool:
    """Give a finished file its name, unless another has it (`FileExistsError`); not every file system can."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:
        return False
    return True


def sync(path: str | Path) -> None:
    """Wait until a file, or on POSIX the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def discard(path: str | Path) -> None:
    """Remove a temporary file, if that can be done: the error that led here is the one to tell."""
    with suppress(OSError):
        os.unlink(path)


def file_mode() -> int:
    """Mode of a new file under the process's mask, which can only be read by setting it."""
    with _MASK:
        mask = os.umask(0o077)
        os.umask(mask)
    return 0o666 & ~mask


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
    except ValueError:
        raise error(f"output {str(path)!r} is no possible file name; choose another name") from None
