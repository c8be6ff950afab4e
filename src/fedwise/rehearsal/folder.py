"""Folder: a run directory of rehearsals.

asked.json        what was asked; another question needs another directory
trainings.jsonl   every finished training, as it ends
plan.json         the plan that the releases answer
rehearsal.json    the answer, once all trainings are done
selection.json    the federation, as the report reads it
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from ..errors import FedwiseError
from ..estimation import Releases
from ..files import write_new
from ..pool.pool import Pool
from ..search.given import given
from ..search.selection import Selection
from ..training.lock import alone
from .performance import Rehearsed
from .trainings import NAME

ASKED, ANSWER, SELECTION = "asked.json", "rehearsal.json", "selection.json"


class Folder:
    """A run directory, or none: then nothing is written."""

    def __init__(self, path: Path | None) -> None:
        self.path = path

    @classmethod
    @contextmanager
    def opened(cls, path: Path | None) -> Iterator[Folder]:
        """The directory, with other processes kept out."""
        if path is None:
            yield cls(None)
            return
        if path.exists() and not path.is_dir():
            raise FedwiseError(f"output '{path}' must be a directory, got a file; choose another")
        with alone(path):
            yield cls(path)

    def begin(self, asked: Mapping[str, Any], pool: Releases, *, force: bool = False) -> None:
        """Write down what is asked, or check that the directory was begun with the same.

        Raises
        ------
        FedwiseError
            It holds something else, and `force` is not set.
        """
        if self.path is None:
            return
        told = msgspec.json.format(msgspec.json.encode(asked, order="sorted"), indent=1) + b"\n"
        path = self.path / ASKED
        if path.exists() and path.read_bytes() != told:
            if not force:
                raise FedwiseError(
                    f"run directory '{self.path}' was begun with other settings, clients or releases; "
                    "ask for the same, choose another, or replace what it holds (--force where the command has it)"
                )
            (self.path / NAME).unlink(missing_ok=True)
            (self.path / SELECTION).unlink(missing_ok=True)
        (self.path / ANSWER).unlink(missing_ok=True)
        write_new(path, told, force=True)
        write_new(self.path / "plan.json", pool.asked.encode(), force=True)

    def keep_federation(self, federation: Selection | Sequence[str], pool: Releases) -> None:
        """Write who is rehearsed, for the report; a selection that lies there already, of a run, stays."""
        if self.path is None or (self.path / SELECTION).exists():
            return
        if isinstance(federation, Selection):
            self.keep_selection(federation)
        elif isinstance(pool, Pool):
            self.keep_selection(given(pool, federation))

    def keep_selection(self, selection: Selection) -> None:
        """Write what was chosen, in place of what an earlier call chose before it was stopped."""
        if self.path is not None:
            write_new(self.path / SELECTION, selection.encode(), force=True)

    def finish(self, found: Rehearsed) -> None:
        """Write the answer."""
        if self.path is not None:
            found.save(self.path / ANSWER, force=True)
