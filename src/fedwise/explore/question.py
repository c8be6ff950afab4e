"""Question: what is on the screen. Everything a search needs, as the page sends it and as a command line."""

from __future__ import annotations

import math
import shlex
from typing import Any

import msgspec

from ..errors import FedwiseError
from ..objective.pfl import Weights

#: Longest question the page may send, in bytes.
MAX_BYTES = 1_000_000


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Weights, size and constraints of one selection."""

    k: int
    weights: Weights
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    min_records: float | None = None

    @classmethod
    def decode(cls, data: bytes | str) -> Question:
        """Read a question strictly.

        Raises
        ------
        FedwiseError
            It is too long, not JSON, or not a question.
        """
        if len(data) > MAX_BYTES:
            raise FedwiseError(f"question must be at most {MAX_BYTES} bytes long, got {len(data)}")
        try:
            found = msgspec.json.decode(data, type=cls)
        except (msgspec.DecodeError, RecursionError, UnicodeError, FedwiseError) as error:
            raise FedwiseError(f"question cannot be read: {error}") from None
        if found.min_records is not None and not math.isfinite(found.min_records):
            raise FedwiseError("min_records must be a finite number")
        return found

    @property
    def constraints(self) -> dict[str, Any]:
        """Keyword arguments of `fedwise.select`."""
        return {"include": self.include, "exclude": self.exclude, "min_records": self.min_records}

    def command(self, releases: str, *, method: str, plan_weights: Weights, seed: int, flagged: bool) -> str:
        """The command line that gives the same selection.

        Names with a comma cannot be passed as options; the line then says so in a comment.
        """
        words = ["fedwise", "select", releases, "-k", str(self.k)]
        for name in self.weights.__struct_fields__:
            value = getattr(self.weights, name)
            if value != getattr(plan_weights, name):
                words += [f"--{name}", repr(value)]
        for option, names in (("--include", self.include), ("--exclude", self.exclude)):
            if names:
                words += [option, ",".join(names)]
        if self.min_records is not None:
            words += ["--min-records", f"{self.min_records:g}"]
        words += ["--method", method, "--seed", str(seed)]
        if flagged:
            words.append("--accept-flagged")
        line = shlex.join([*words, "-o", "selection.json"])
        if any("," in name for name in (*self.include, *self.exclude)):
            line += "  # a client name holds a comma: use fedwise.select in Python instead"
        return line
