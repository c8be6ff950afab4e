"""A walk over every byte a client writes, prints, logs or sends, looking for what must stay at home.

`Secrets` knows what to look for: the number of records, the exact marginals, values of rows, and which of the
declared levels occur. `Watch` collects what may hold it: standard output and error, log records, exceptions as
a person sees them, messages, files, and files that are gone again by the end (temporary ones are copied at
the moment before they are moved or removed).

Exact *cells* need another test: a noisy count hits its exact value by chance once in σ√(2π) draws, so finding
one proves nothing. `repeated_cells` counts hits over many releases instead.

What a suppressed exception (``raise … from None``) still holds inside the process is not walked: it is neither
printed nor logged nor sent, just as local variables are not.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import struct
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import polars as pl
from scipy.stats import binom

import fedwise as fw
from fedwise.owner.tables import count
from fedwise.privacy.accounting import discrete_gaussian
from owner.guild import INCOMES, NAMES, STRANGE, TRADES


@dataclass
class Secrets:
    """What must not be found, and how it may be written."""

    numbers: frozenset[int]
    texts: tuple[str, ...] = (STRANGE, *NAMES)
    _patterns: dict[int, list[bytes]] = field(default_factory=dict)
    _decimal: re.Pattern[bytes] = field(init=False)

    def __post_init__(self) -> None:
        written = [form for n in self.numbers for form in (str(n), f"{n:,}", f"{n:_}")]
        # Bounded by anything but a digit or a letter of a digest: those are random, and long.
        self._decimal = re.compile(
            rb"(?<![0-9A-Fa-f])(?:%s)(?![0-9A-Fa-f])" % b"|".join(re.escape(w.encode()) for w in written)
        )
        for n in self.numbers:
            forms = [struct.pack(f"{order}{kind}", n) for order in "<>" for kind in "qi"]
            forms += [struct.pack(f"{order}d", n) for order in "<>"]
            self._patterns[n] = forms

    @classmethod
    def of(cls, plan: fw.Plan, frame: pl.DataFrame) -> Secrets:
        """Records, marginals and incomes, save numbers so near a cell's exact count that noise may hit them."""
        codes = plan.schema.encode(frame)
        cells = count(codes, plan.layout).exact
        totals = {frame.height} | {
            int(n) for x, size in enumerate(plan.schema.sizes) for n in np.bincount(codes[x], minlength=size)
        }
        reach = 12 * float(plan.sigmas.max())
        far = {n for n in totals if n > 1000 and np.abs(cells - n).min() > reach}
        return cls(frozenset(far | set(INCOMES)))

    def find(self, data: bytes, *, compact: bool = False) -> list[str]:
        """What of it is in `data`. `compact` also looks for variable-length integers, as protobuf writes them:
        three bytes, so only in bytes without random parts."""
        found = [f"number {hit.decode()}" for hit in set(self._decimal.findall(data))]
        for n, forms in self._patterns.items():
            compacts = [_varint(n), _varint(2 * n)] if compact else []
            found += [f"binary {n}" for form in (*forms, *compacts) if form in data]
        for text in self.texts:
            for encoding in ("utf-8", "utf-16-le", "utf-16-be"):
                if text.encode(encoding) in data:
                    found.append(f"text {text}")
        mentions = {trade: data.count(trade.encode()) for trade in TRADES}
        if len(set(mentions.values())) > 1:
            # Whoever lists the declared levels lists them all; a list of those seen is shorter.
            found.append(f"levels {mentions}")
        return found


def _varint(n: int) -> bytes:
    found = bytearray()
    while n > 127:
        found.append(n & 127 | 128)
        n >>= 7
    return bytes([*found, n])


class Watch:
    """Collects everything that is written while it is active, under names that say where it was."""

    _now: Watch | None = None
    _hooked = False

    def __init__(self, folder: Path, vault: Path, *, inputs: Iterable[Path] = ()) -> None:
        self.folder = folder
        self.vault = vault
        self.inputs = {path.resolve() for path in inputs}
        self.blobs: list[tuple[str, bytes]] = []
        self._handler = _Collector(self)
        vault.mkdir(parents=True, exist_ok=True)
        if not Watch._hooked:
            Watch._hooked = True
            sys.addaudithook(Watch._hear)

    def note(self, name: str, data: bytes | str) -> None:
        """Add something to be walked."""
        self.blobs.append((name, data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data))

    def note_error(self, name: str, error: BaseException) -> None:
        """An exception as a person sees it: text, arguments, and the traceback with its causes."""
        self.note(f"{name} text", str(error))
        self.note(f"{name} repr", repr(error))
        self.note(f"{name} arguments", repr(error.args))
        self.note(f"{name} traceback", "".join(traceback.format_exception(error)))

    def __enter__(self) -> Watch:
        Watch._now = self
        self._loggers = [logging.getLogger(), logging.getLogger("flwr")]
        self._levels = [logger.level for logger in self._loggers]
        for logger in self._loggers:
            logger.addHandler(self._handler)
            logger.setLevel(logging.DEBUG)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        Watch._now = None
        for logger, level in zip(self._loggers, self._levels, strict=True):
            logger.removeHandler(self._handler)
            logger.setLevel(level)
        self.note_files()

    def note_files(self) -> None:
        """Every file under the folder but the owner's own rows, and every copy in the vault."""
        for root in (self.folder, self.vault):
            for path in sorted(root.rglob("*")):
                self.note(f"name {path}", str(path.relative_to(root)))
                if path.is_file() and path.resolve() not in self.inputs:
                    self.note(f"file {path}", path.read_bytes())

    def walk(self, secrets: Secrets) -> list[str]:
        """All findings."""
        return [
            f"{where}: {what}"
            for where, data in self.blobs
            for what in secrets.find(data, compact="message" in where)
        ]

    @staticmethod
    def _hear(event: str, arguments: tuple[Any, ...]) -> None:
        # At the end of the process names of this module are gone before the hook is.
        watch = Watch._now if Watch is not None else None
        if watch is None or event not in ("os.remove", "os.rename", "os.truncate", "shutil.move"):
            return
        path = arguments[0]
        if isinstance(path, int) or not os.path.isfile(path):
            return
        place = Path(os.fsdecode(path)).resolve()
        if place in watch.inputs or watch.vault in place.parents:
            return
        Watch._now = None  # the copy itself is not watched
        try:
            shutil.copyfile(place, watch.vault / f"{len(os.listdir(watch.vault))}-{place.name}")
        finally:
            Watch._now = watch


class _Collector(logging.Handler):
    def __init__(self, watch: Watch) -> None:
        super().__init__(logging.DEBUG)
        self.watch = watch

    def emit(self, record: logging.LogRecord) -> None:
        self.watch.note(f"log {record.name}", self.format(record))
        self.watch.note(f"log arguments {record.name}", repr(record.args))


#: Chance that honest noise is accused by `repeated_cells`, over all cells together.
FALSE_ALARM = 1e-9


def repeated_cells(releases: list[fw.Release], frame: pl.DataFrame) -> list[int]:
    """Cells that show their exact value more often than the discrete Gaussian can: P(0) = 1/Σ exp(−z²/2σ²)."""
    plan = releases[0].plan
    exact = count(plan.schema.encode(frame), plan.layout).exact
    hits = np.sum([np.asarray(made.counts) == exact for made in releases], axis=0)
    chance = plan.layout.per_cell([_chance(float(sigma)) for sigma in plan.sigmas])
    p_values = binom.sf(hits - 1, len(releases), chance)
    return np.flatnonzero(p_values < FALSE_ALARM / len(exact)).tolist()


def _chance(sigma: float) -> float:
    support, mass = discrete_gaussian(sigma)
    return float(mass[support == 0][0])
