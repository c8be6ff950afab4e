"""Question: what is on the screen. Everything a search needs, as the page sends it and as a command line."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from ..errors import FedwiseError
from ..objective.pfl import Weights
from ..view.command import select_lines

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
        return "\n".join(
            select_lines(
                releases,
                self.k,
                self.constraints,
                weights=self.weights,
                plan_weights=plan_weights,
                method=method,
                seed=seed,
                more=("--accept-flagged",) if flagged else (),
            )
        )
