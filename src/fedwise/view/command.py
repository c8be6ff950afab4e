"""Command: the command line that gives a selection again, for the report and the explorer."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ..objective.pfl import Weights

#: Constraints that are one number each on the command line.
_NUMBERS = ("min_records", "min_client_records", "budget")


def select_lines(
    releases: str,
    k: int,
    constraints: Mapping[str, Any],
    *,
    weights: Weights,
    plan_weights: Weights | None,
    method: str,
    seed: int,
    more: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> list[str]:
    """Command lines that give a selection: the files it needs first, then ``fedwise select``.

    Parameters
    ----------
    constraints
        What the federation had to satisfy, by argument of `fedwise.select`.
    weights, plan_weights
        The weights of the loss, and those that the plan gives without being asked; ``None``: all are named.
    more
        Further words of the line.
    notes
        What the line cannot say, as a comment behind it.
    """
    lines, notes = [], list(notes)
    words = ["fedwise", "select", releases, "-k", str(k)]
    for name in weights.__struct_fields__:
        value = getattr(weights, name)
        if plan_weights is None or value != getattr(plan_weights, name):
            words += [f"--{name}", repr(value)]
    for name in ("include", "exclude"):
        names = constraints.get(name) or ()
        if names:
            words += [f"--{name}", ",".join(names)]
        if any("," in client for client in names):
            notes.append("a client name holds a comma: use fedwise.select in Python instead")
    for name in _NUMBERS:
        if constraints.get(name) is not None:
            words += [f"--{name.replace('_', '-')}", f"{constraints[name]:.12g}"]
    for name, column, option in (("groups", "group", "--group-file"), ("costs", "cost", "--cost-file")):
        table = constraints.get(name) or {}
        if table:
            lines.append(_write(table, column, f"{name}.csv"))
            words += [option, f"{name}.csv"]
    most = constraints.get("max_per_group")
    if isinstance(most, Mapping):
        notes.append("each group has a limit of its own: use fedwise.select in Python instead")
    elif most is not None:
        words += ["--max-per-group", str(most)]
    if constraints.get("exclude_suspect"):
        words.append("--exclude-suspect")
    if constraints.get("answered"):
        words.append("--answered")
    words += ["--method", method, "--seed", str(seed), *more, "-o", "selection.json"]
    line = shlex.join(words)
    return [*lines, f"{line}  # {'; '.join(dict.fromkeys(notes))}" if notes else line]


def _write(table: Mapping[str, Any], column: str, file: str) -> str:
    """A line of the shell that writes a CSV of clients and values."""
    rows = [f"client,{column}", *(f"{_cell(client)},{_cell(str(value))}" for client, value in table.items())]
    return f"printf '%s\\n' {shlex.join(rows)} > {file}"


def _cell(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if set(text) & set(',"\n') else text
