"""Tree: the pairs of variables that tell most about each other, as far as they close no circle (Chow & Liu 1968)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..schema.layout import Layout
from .information import information

Floats = npt.NDArray[np.float64]

#: A variable, the one it hangs on (none for a first one), and their table with that one in its rows.
Branch = tuple[int, int | None, Floats]


def strongest_tree(
    layout: Layout, shares: Floats, *, variables: Sequence[int] | None = None, root: int | None = None
) -> list[Branch]:
    """Spanning tree of most mutual information, in an order in which every variable follows its parent.

    Several trees where no table joins them; a variable without a table is left out.

    Parameters
    ----------
    shares
        Shape (cells,): each table sums to 1.
    variables
        Positions to span; default all.
    root
        The first variable; default one of the strongest pair.
    """
    wanted = set(range(len(layout.sizes)) if variables is None else variables)
    edges: list[tuple[float, int, int, Floats]] = []
    for j, (x, y) in enumerate(layout.pairs):
        if x in wanted and y in wanted:
            table = shares[layout.slice(j)].reshape(layout.shapes[j])
            edges.append((information(table), x, y, table))
    edges.sort(key=lambda edge: -edge[0])
    order: list[Branch] = []
    reached: set[int] = set()
    while True:
        found = next((e for e in edges if (e[1] in reached) != (e[2] in reached)), None)
        if found is not None:
            _, x, y, table = found
            order.append((y, x, table) if x in reached else (x, y, table.T))
            reached |= {x, y}
            continue
        first = next((e for e in edges if e[1] not in reached and (reached or root in (None, *e[1:3]))), None)
        if first is None:
            return order
        _, x, y, table = first
        order.append((y, None, table) if not reached and y == root else (x, None, table.T))
        reached.add(order[-1][0])
