"""Notebook: how values show themselves there, as small tables and as pictures."""

from __future__ import annotations

import html
import importlib
from collections.abc import Iterable, Sequence
from typing import Any


def html_table(rows: Iterable[Sequence[object]], *, head: Sequence[str] = (), title: str = "") -> str:
    """A small table; the first cell of every row names it. Every cell is inert text."""
    caption = f"<caption style='text-align:left'><b>{html.escape(title)}</b></caption>" if title else ""
    top = f"<tr>{''.join(_cell('th', name) for name in head)}</tr>" if head else ""
    body = "".join(
        f"<tr>{_cell('th', row[0])}{''.join(_cell('td', value) for value in row[1:])}</tr>" for row in rows
    )
    return f"<table>{caption}{top}{body}</table>"


def _cell(tag: str, value: object) -> str:
    return f"<{tag} style='text-align:left;vertical-align:top'>{html.escape(str(value))}</{tag}>"


def plot(value: object) -> Any:
    """The picture of a value as an `altair.Chart`.

    Pictures live above the core, with the charts of the report, and are found when one is asked for.

    Raises
    ------
    MissingExtra
        ``altair`` is not installed.
    """
    return importlib.import_module("fedwise.view.pictures").picture(value)
