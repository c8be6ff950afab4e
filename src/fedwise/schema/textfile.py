"""Text file: rows of a CSV or TSV file as they come: any common separator, encoding and compression."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..deferred import Deferred
from ..errors import DataError

if TYPE_CHECKING:
    import polars as pl
else:
    pl = Deferred("polars")

#: What separates cells, by the end of the file's name; the header may say otherwise.
SEPARATORS = {".csv": ",", ".txt": ",", ".tsv": "\t", ".tab": "\t", ".psv": "|"}
#: Separators that are looked for in the header.
_CANDIDATES = (",", ";", "\t", "|")
#: Compressions that polars reads by itself, and those of the standard library.
_NATIVE = (".gz", ".zst")
_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
COMPRESSED = (*_OPENERS, ".zst", ".zip")
#: Longest name of a column: a longer one is a quote that was never closed.
_LONGEST_NAME = 10_000
_HEAD_BYTES = 1 << 20


def read_text(path: Path, separator: str, columns: Sequence[str] | None, text: Sequence[str]) -> pl.DataFrame:
    """Rows of a text file: the wanted columns, those in `text` as text, the others by what they hold.

    polars' own errors pass through: they quote cells, and the caller must not.
    """
    source = _source(path)
    names, separator = _header(source, path, separator, columns)
    return pl.read_csv(
        source,
        separator=separator,
        columns=None if columns is None else [c for c in columns if c in names],
        schema_overrides={c: pl.String for c in text if c in names},
        infer_schema_length=None,
    )


def read_names(path: Path, separator: str, columns: Sequence[str] | None = None) -> list[str]:
    """Names in the header as they are written."""
    return _header(_source(path), path, separator, columns)[0]


def read_head(path: Path, separator: str, rows: int) -> pl.DataFrame:
    """The first rows, with types told from them."""
    source = _source(path)
    separator = _header(source, path, separator, None)[1]
    return pl.read_csv(source, separator=separator, n_rows=rows, infer_schema_length=rows)


def _source(path: Path) -> Path | bytes:
    """The path where polars can read it as it is, otherwise its text in UTF-8."""
    suffix = path.suffix.lower()
    if suffix in COMPRESSED and suffix not in _NATIVE:
        return _utf8(_unpacked(path))
    # Whether all of it is UTF-8 is told by reading it; a file that is not is rare.
    if suffix == ".zst":
        return path
    opener = gzip.open if _starts(path, b"\x1f\x8b") else None
    with opener(path, "rb") if opener is not None else path.open("rb") as file:
        head = file.read(2)
        if head in (b"\xff\xfe", b"\xfe\xff"):
            return _utf8(head + file.read())
        while block := head + file.read(_HEAD_BYTES):
            head = b""
            if not block.isascii():
                try:
                    (block + file.read()).decode("utf-8")
                    return path
                except UnicodeDecodeError:
                    return _utf8(_unpacked(path) if opener is not None else path.read_bytes())
    return path


def _starts(path: Path, mark: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(mark)) == mark


def _unpacked(path: Path) -> bytes:
    suffix = path.suffix.lower()
    if suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            files = [info for info in archive.infolist() if not info.is_dir()]
            if len(files) != 1:
                raise DataError(f"data file '{path}' must hold exactly one file; unpack it and name one")
            return archive.read(files[0])
    with _OPENERS[suffix](path, "rb") as file:
        return bytes(file.read())


def _utf8(data: bytes) -> bytes:
    """Text in UTF-8. What is neither UTF-8 nor marked as UTF-16 is taken for Windows-1252, as spreadsheets save it."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16").encode()
    for encoding in ("utf-8-sig", "cp1252"):
        try:
            return data.decode(encoding).encode()
        except UnicodeDecodeError:
            continue
    return data.decode("latin-1").encode()


def _header(
    source: Path | bytes, path: Path, separator: str, wanted: Sequence[str] | None
) -> tuple[list[str], str]:
    """Names of the columns as they are written (polars would rename the second of two equal ones), and the separator.

    It is the one under which most wanted columns are found; then that of the file's name, where the header holds it
    at all; then the one that gives most columns.
    """
    # Several lines: a quoted name may hold a line break.
    lines = pl.read_csv(
        source, separator="\x01", quote_char=None, has_header=False, n_rows=10, infer_schema=False
    )
    first = "\n".join(line or "" for line in lines.to_series()) if lines.width else ""
    found: dict[str, list[str]] = {}
    for candidate in dict.fromkeys((separator, *_CANDIDATES)):
        try:
            found[candidate] = next(csv.reader(io.StringIO(first), delimiter=candidate), [])
        except csv.Error:
            continue
    if not found:
        raise DataError(f"data file '{path}' cannot be read as CSV; check the file")
    best = max(
        found,
        key=lambda mark: (
            sum(name in found[mark] for name in wanted or ()),
            mark == separator and len(found[mark]) > 1,
            len(found[mark]),
        ),
    )
    names = found[best]
    if any(len(name) > _LONGEST_NAME for name in names):
        raise DataError(f"data file '{path}' cannot be read as CSV; check the file")
    refuse_duplicates(names, f"'{path}'")
    return names, best


def refuse_duplicates(names: list[str], where: str) -> None:
    """Two columns of one name cannot be told apart."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"column '{twice[0]}' appears twice in {where}; rename or drop one")
