"""Layout: a table that fits the terminal. What does not fit beside the first columns goes below them, whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def print_fitted(
    console: Console,
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    right: Sequence[str] = (),
    keys: int = 1,
) -> None:
    """Print a table in which no word, number or name is broken or cut.

    The first `keys` columns say what a line is about, and those in `right` hold numbers: neither is wrapped. Other
    columns wrap between words. Where that is still too wide, the table is printed in parts, each with the first
    columns; where even one more column has no room, line by line as ``column: value``.
    """
    from rich import box
    from rich.cells import cell_len
    from rich.markup import escape
    from rich.table import Table

    cells = [[str(cell) for cell in row] for row in rows]
    least = _least(columns, cells, right, keys)
    most = [max(cell_len(text) for text in texts) for texts in zip(columns, *cells, strict=True)]
    parts = _parts(least, keys, console.width)
    if parts is None:
        _print_lines(console, title, columns, cells)
        return
    for number, part in enumerate(parts):
        table = Table(box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
        table.title = title if number == 0 else None
        widths = _widths([least[i] for i in part], [most[i] for i in part], console.width)
        for i, width in zip(part, widths, strict=True):
            table.add_column(columns[i], justify="right" if columns[i] in right else "left", width=width)
        for row in cells:
            # Names come from files of other parties: shown as text, never as markup.
            table.add_row(*(escape(row[i]) for i in part))
        console.print(table)


def _least(columns: Sequence[str], cells: list[list[str]], right: Sequence[str], keys: int) -> list[int]:
    """Least width of each column: its longest cell, or its longest word where it may wrap, as a heading may."""
    from rich.cells import cell_len

    found = []
    for i, column in enumerate(columns):
        texts = [row[i] for row in cells]
        if i >= keys and column not in right:
            texts = [word for text in texts for word in text.split()]
        found.append(max((cell_len(text) for text in [*texts, *column.split()]), default=0))
    return found


def _parts(least: list[int], keys: int, width: int) -> list[list[int]] | None:
    """The columns of each part, by position; ``None`` where a column does not fit beside the first ones."""

    first = list(range(min(keys, len(least))))
    parts = [first]
    for i in range(len(first), len(least)):
        if _spare([least[j] for j in (*parts[-1], i)], width) >= 0:
            parts[-1] = [*parts[-1], i]
        elif _spare([least[j] for j in (*first, i)], width) >= 0:
            parts.append([*first, i])
        else:
            return None
    return parts[1:] if len(parts) > 1 and parts[0] == first else parts


def _spare(widths: list[int], width: int) -> int:
    """What columns of these widths leave: each has two blanks, and there is one between two and at either end."""
    return width - sum(widths) - 3 * len(widths) - 1


def _widths(least: list[int], most: list[int], width: int) -> list[int]:
    """Widths that fill the terminal: what is to spare goes to the column that lacks the largest part of its text."""
    widths = list(least)
    for _ in range(_spare(least, width)):
        i = max(range(len(widths)), key=lambda i: most[i] / max(widths[i], 1))
        if widths[i] >= most[i]:
            break
        widths[i] += 1
    return widths


def _print_lines(console: Console, title: str, columns: Sequence[str], cells: list[list[str]]) -> None:
    """Every value on a line of its own; the terminal wraps what is longer."""
    console.print(title, style="bold", markup=False, soft_wrap=True)
    for row in cells:
        console.print()
        for column, cell in zip(columns, row, strict=True):
            console.print(f"{column}: {cell}" if column else cell, markup=False, soft_wrap=True)
