"""Layout: offsets of cells and marginals, against positions counted by hand."""

from __future__ import annotations

import numpy as np

from fedwise.schema.layout import Layout

LAYOUT = Layout(("a", "b", "c"), (2, 3, 4), ((0, 1), (2, 1)))


def test_cells_and_marginals_lie_one_after_another() -> None:
    assert LAYOUT.offsets.tolist() == [0, 6, 18]
    assert LAYOUT.shapes == ((2, 3), (4, 3))
    assert LAYOUT.marginal_offsets.tolist() == [0, 2, 5, 9]
    assert (LAYOUT.cells, LAYOUT.levels, LAYOUT.tables) == (18, 9, 2)
    assert [LAYOUT.marginal(v) for v in range(3)] == [slice(0, 2), slice(2, 5), slice(5, 9)]
    assert LAYOUT.sides(0) == (slice(0, 2), slice(2, 5))
    assert LAYOUT.sides(1) == (slice(5, 9), slice(2, 5))


def test_tables_of_a_flat_vector() -> None:
    flat = np.arange(36).reshape(2, 18)
    np.testing.assert_array_equal(LAYOUT.view(flat, 1)[1], np.arange(24, 36).reshape(4, 3))
    np.testing.assert_array_equal(LAYOUT.per_cell([1.0, 2.0]), [1.0] * 6 + [2.0] * 12)


def test_layouts_of_the_same_pairs_are_equal() -> None:
    same = Layout(("a", "b", "c"), (2, 3, 4), ((0, 1), (2, 1)))
    assert same == LAYOUT
    assert hash(same) == hash(LAYOUT)
    assert Layout(("a", "b", "c"), (2, 3, 4), ((0, 1),)) != LAYOUT
