"""Blocks of the documentation: what is a command, what is Python, and what says that it is not run."""

from __future__ import annotations

import re
import shlex
import textwrap
from pathlib import Path
from typing import NamedTuple

#: The one way to say that a block is not run; a reader sees it above the block.
NOT_RUN = "Not run here: "
_BLOCK = re.compile(r"^( *)```(\w*)([^\n]*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
SHELL = ("console", "bash", "sh", "shell")


class Block(NamedTuple):
    """One block: its language, its text, why it is not run (empty: it is), and where it starts."""

    language: str
    text: str
    reason: str
    line: int

    @property
    def commands(self) -> list[list[str]]:
        """The command lines of a shell block, as words."""
        joined = self.text.replace("\\\n", " ")
        lines = [line.strip()[1:].strip() for line in joined.splitlines() if line.strip().startswith("$")]
        return [words for words in (shlex.split(line, comments=True) for line in lines) if words]


def blocks(page: Path) -> list[Block]:
    """Every block of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _BLOCK.finditer(text):
        title = re.search(r'title="([^"]*)"', match[3])
        said = title[1] if title else ""
        reason = said.removeprefix(NOT_RUN) if said.startswith(NOT_RUN) else ""
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(match[2], textwrap.dedent(match[4]), reason, line))
    return found
