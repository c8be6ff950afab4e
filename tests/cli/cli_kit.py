"""What a command printed and how it ended, and what a refusal looks like."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

SECRET = "S3NT1NEL"
RELEASE = ("release", "plan.json", "people.csv", "--client", "CA")


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, object]:
        """The one JSON object on stdout."""
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found


Run = Callable[..., Outcome]


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def check_refused(outcome: Outcome, message: str, *, code: int = 2) -> None:
    """One sentence on stderr that names the culprit, and nothing else."""
    assert outcome.code == code, outcome.err
    assert outcome.out == ""
    assert message in outcome.err
    assert "Traceback" not in outcome.err
    assert SECRET not in outcome.err
    lines = outcome.err.strip().splitlines()
    assert len(lines) == 1, outcome.err
    assert lines[0].startswith("error: ")
