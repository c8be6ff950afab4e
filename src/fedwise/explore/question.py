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
    min_client_records: float | None = None
    groups: dict[str, str] = {}
    max_per_group: int | None = None
    costs: dict[str, float] = {}
    budget: float | None = None
    exclude_suspect: bool = False
    maximise: str | None = None
    subject_to: dict[str, float] = {}

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
        for name in ("min_records", "min_client_records", "budget"):
            value = getattr(found, name)
            if value is not None and not math.isfinite(value):
                raise FedwiseError(f"{name} must be a finite number")
        return found

    @property
    def key(self) -> bytes:
        """The question as bytes: the same for the same question."""
        return msgspec.json.encode(self)

    @property
    def constraints(self) -> dict[str, Any]:
        """What was set of the rules of `fedwise.Constraints`; groups and costs count with their limit only."""
        found: dict[str, Any] = {
            "include": self.include,
            "exclude": self.exclude,
            "min_records": self.min_records,
            "min_client_records": self.min_client_records,
            "exclude_suspect": self.exclude_suspect,
        }
        if self.groups and self.max_per_group is not None:
            found |= {"groups": self.groups, "max_per_group": self.max_per_group}
        if self.costs and self.budget is not None:
            found |= {"costs": self.costs, "budget": self.budget}
        return {name: value for name, value in found.items() if value not in (None, (), False)}

    @property
    def objective_words(self) -> list[str]:
        """The objective on the command line; nothing for the loss."""
        if self.maximise is None:
            return []
        limits = ",".join(f"{metric}={limit:g}" for metric, limit in self.subject_to.items())
        return ["--maximise", self.maximise, *(["--subject-to", limits] if limits else [])]

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
                more=[*self.objective_words, *(["--accept-flagged"] if flagged else [])],
            )
        )
