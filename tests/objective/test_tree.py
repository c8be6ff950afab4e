"""The tree of strongest pairs."""

from __future__ import annotations

import itertools

import numpy as np

from fedwise.objective.information import information
from fedwise.objective.tree import strongest_tree
from fedwise.schema.layout import Layout


def _tables(
    seed: int, pairs: tuple[tuple[int, int], ...], sizes: tuple[int, ...]
) -> tuple[Layout, np.ndarray]:
    layout = Layout(tuple(f"v{i}" for i in range(len(sizes))), sizes, pairs)
    rng = np.random.default_rng(seed)
    parts = [rng.dirichlet(np.full(a * b, 0.5)) for a, b in layout.shapes]
    return layout, np.concatenate(parts)


def test_it_holds_more_information_than_any_other_tree() -> None:
    pairs = tuple(itertools.combinations(range(5), 2))
    layout, shares = _tables(0, pairs, (2, 3, 4, 2, 3))
    strength = {
        pair: information(shares[layout.slice(j)].reshape(layout.shapes[j])) for j, pair in enumerate(pairs)
    }

    def spans(edges: tuple[tuple[int, int], ...]) -> bool:
        reached = {0}
        for _ in edges:
            reached |= {v for edge in edges if reached & set(edge) for v in edge}
        return len(reached) == 5

    best = max(sum(strength[e] for e in edges) for edges in itertools.combinations(pairs, 4) if spans(edges))
    for root in (None, 0, 3, 4):
        tree = strongest_tree(layout, shares, root=root)
        assert root in (None, tree[0][0])
        assert [parent is None for _, parent, _ in tree] == [True, False, False, False, False]
        found = sum(strength[(min(c, p), max(c, p))] for c, p, _ in tree if p is not None)
        assert np.isclose(found, best)
        seen: set[int] = set()
        for child, parent, table in tree:
            assert parent is None or parent in seen
            assert table.shape[1] == layout.sizes[child]
            assert parent is None or table.shape[0] == layout.sizes[parent]
            seen.add(child)


def test_parts_that_no_table_joins_are_trees_of_their_own() -> None:
    layout, shares = _tables(1, ((0, 1), (2, 3)), (2, 3, 2, 2, 4))
    tree = strongest_tree(layout, shares)
    assert sorted(child for child, _, _ in tree) == [0, 1, 2, 3]
    assert sum(parent is None for _, parent, _ in tree) == 2
    assert strongest_tree(layout, shares, variables=(4,), root=4) == []
