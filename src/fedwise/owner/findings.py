"""Findings: what an owner should know of a file before a release is made from it.

They hold figures of the private rows and are for the owner alone: printed where the file lies, written nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, NoReturn

from ..errors import FedwiseError

Level = Literal["problem", "warning", "note"]


class Finding(NamedTuple):
    """One thing found: what it is without any figure of the rows, the figures, and what to do about it."""

    level: Level
    says: str
    figures: str = ""
    cure: str = ""


def problem(says: str, figures: str = "", cure: str = "") -> Finding:
    """Something that would stop a release."""
    return Finding("problem", says, figures, cure)


def warning(says: str, figures: str = "", cure: str = "") -> Finding:
    """Something to look at before a release."""
    return Finding("warning", says, figures, cure)


def from_error(error: FedwiseError) -> Finding:
    """A refusal of the library: what is wrong, and behind its semicolon what to do."""
    says, _, cure = str(error).partition("; ")
    return problem(says, cure=cure)


class Findings:
    """Everything found in one file, problems first. Refuses to be pickled: it holds figures of private rows."""

    def __init__(self, found: Sequence[Finding], *, rows: int | None = None, kept: int | None = None) -> None:
        order: dict[str, int] = {"problem": 0, "warning": 1, "note": 2}
        self.all = tuple(sorted(found, key=lambda finding: order[finding.level]))
        #: Rows of the file, and those that satisfy the filter; None where it could not be read.
        self.rows, self.kept = rows, kept

    @property
    def problems(self) -> tuple[Finding, ...]:
        """What would stop a release."""
        return self._at("problem")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """What would not stop it, and should be looked at first."""
        return self._at("warning")

    @property
    def notes(self) -> tuple[Finding, ...]:
        """What else is worth knowing: what is sent, and what it tells."""
        return self._at("note")

    @property
    def ok(self) -> bool:
        """Whether a release would be made."""
        return not self.problems

    def _at(self, level: Level) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.all if finding.level == level)

    def __repr__(self) -> str:
        return f"Findings({len(self.problems)} problems, {len(self.warnings)} warnings)"

    def __str__(self) -> str:
        lines = []
        for finding in self.all:
            lines.append(
                f"{finding.level}: {finding.says}" + (f" ({finding.figures})" if finding.figures else "")
            )
            lines += [f"  {line}" for line in finding.cure.split("\n") if line]
        return "\n".join(lines)

    def __reduce__(self) -> NoReturn:
        raise TypeError("Findings hold figures of private rows and are never serialised")
