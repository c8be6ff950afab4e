"""Draft: a schema to be completed by a person, made from column names and types only.

No value is looked at beyond telling numbers from text in a CSV file. Domains come from public
knowledge; the draft leaves them empty, so it cannot be used before someone has filled them in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import polars as pl

from ..files import format_toml

_HEADER = """\
# Draft made from column names and types only.
#
# Confirm every domain from PUBLIC knowledge (a form, a data dictionary), not from the rows:
# levels or ranges read from data would leak what the noise is there to hide.
# Every empty list below has to be filled in before this schema can be used. Then check:
#   role     feature, sensitive (one or several) or target (exactly one); delete columns not needed
#   levels   the categories, as integers or text;  bins  edges of [a,b) intervals;
#   rule     for a yes/no target, such as  rule = "INCOME > 50000"
#   missing / unknown   "stop" the release, or count as an extra level "other"
"""


def draft_schema(types: Mapping[str, pl.DataType], *, name: str) -> str:
    """TOML text of a draft: a table for each column, empty domains, the last column as target."""
    lines = [_HEADER, f'name = "{_safe(name)}"']
    last = list(types)[-1] if types else ""
    taken: set[str] = set()
    for column, kind in types.items():
        safe = _safe(column)
        while safe in taken:
            safe = f"{safe[:61]}_{len(taken)}"
        taken.add(safe)
        lines += ["", f'[columns."{safe}"]', f'role = "{"target" if column == last else "feature"}"']
        if safe != column:
            lines.append(format_toml({"source": [column]}).rstrip("\n"))
        if kind.is_float():
            lines.append("bins = []      # CONFIRM: edges in increasing order, such as [0, 10, 20, 50]")
        elif kind.is_integer():
            lines.append(
                "levels = []    # CONFIRM: integer codes, such as [1, 2, 3]; or use bins = [...] instead"
            )
        elif kind == pl.Boolean:
            lines.append("levels = [0, 1]")
        else:
            lines.append('levels = []    # CONFIRM: the categories, such as ["yes", "no"]')
        lines += ['missing = "stop"', 'unknown = "stop"']
    return "\n".join(lines) + "\n"


def _safe(name: str) -> str:
    cleaned = re.sub(r"[^\w.\- ]", "_", name, flags=re.ASCII).strip()[:64]
    return cleaned if re.match(r"[A-Za-z_]", cleaned) else f"c_{cleaned}"[:64]
