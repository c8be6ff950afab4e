"""Command: how every command reads its words; spellings of older versions are still understood, and not shown."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

#: For each command, options of older versions and what they are called now.
OLD_SPELLINGS: dict[str, dict[str, str]] = {
    "calibrate": {"--sizes": "--size"},
    "demo": {"--k": "--size"},
    "frontier": {"--pareto-k": "--pareto-size"},
    "train": {"--pool": "--releases"},
}


class Command(TyperCommand):
    """A command that also takes the options it had under another name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words of the command line, old spellings replaced."""
        old = OLD_SPELLINGS.get(self.name or "", {})
        return super().parse_args(ctx, [_current(word, old) for word in args])


def _current(word: str, old: dict[str, str]) -> str:
    name, equals, value = word.partition("=")
    return f"{old[name]}{equals}{value}" if name in old else word
