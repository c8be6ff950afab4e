"""Markdown: tables and pictures."""

from __future__ import annotations

from collections.abc import Sequence


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def picture(name: str, text: str, figures: Sequence[str], folder: str = "") -> str:
    """A picture beside the page or in a folder beside it; nothing where it was not drawn."""
    return f"![{text}]({folder}{name})" if name in figures else ""


def sections(parts: Sequence[str]) -> str:
    """Parts that are not empty, with a line between them."""
    return "\n\n".join(part for part in parts if part)
