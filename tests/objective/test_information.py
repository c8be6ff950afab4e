"""Information against definitions written out here, in loops; gradients against finite differences."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedwise
from fedwise.objective.information import (
    ONE_RECORD,
    entropy,
    from_sums,
    gradient,
    information,
    informations,
    pointwise,
    ratio,
    xlogx,
    xlogx_slope,
)

TABLE = np.array([[120.0, 30.0, 50.0], [40.0, 90.0, 70.0]])


def by_definition(table: np.ndarray) -> float:
    """Σ p log2 (p / (p_x p_y)) over the positive cells."""
    counts = [[max(float(c), 0.0) for c in row] for row in table]
    n = sum(map(sum, counts))
    found = 0.0
    for row in counts:
        for y, c in enumerate(row):
            if c > 0:
                found += c / n * math.log2(c * n / (sum(row) * sum(other[y] for other in counts)))
    return found


def numeric(table: np.ndarray, step: float = 1e-3) -> np.ndarray:
    """Central differences of the information by each cell."""
    found = np.zeros_like(table)
    for at in np.ndindex(*table.shape):
        moved = np.zeros_like(table)
        moved[at] = step
        found[at] = (information(table + moved) - information(table - moved)) / (2 * step)
    return found


@settings(max_examples=200, deadline=None)
@given(
    cells=st.lists(st.floats(-20, 0) | st.floats(1e-6, 1e5), min_size=6, max_size=6).filter(
        lambda cells: max(cells) > 0
    )
)
def test_information_is_its_definition(cells: list[float]) -> None:
    table = np.array(cells).reshape(2, 3)
    assert information(table) == pytest.approx(by_definition(table), abs=1e-9)


def test_known_values() -> None:
    assert information(np.eye(4) * 7) == pytest.approx(2.0)
    assert information(np.outer([1.0, 3.0], [2.0, 5.0, 9.0])) == pytest.approx(0.0, abs=1e-12)
    assert information(np.zeros((2, 3))) == 0.0
    assert information(np.full((2, 3), -4.0)) == 0.0
    assert entropy([3.0, 3.0, 3.0, 3.0, -8.0]) == pytest.approx(2.0)
    assert entropy(np.zeros(3)) == 0.0


def test_information_is_the_entropy_the_variables_share() -> None:
    shared = entropy(TABLE.sum(axis=1)) + entropy(TABLE.sum(axis=0)) - entropy(TABLE.ravel())
    assert information(TABLE) == pytest.approx(float(shared))


def test_a_stack_of_tables_is_every_table_alone() -> None:
    rng = np.random.default_rng(0)
    stack = rng.normal(20, 30, (5, 4, 3, 6))
    stack[1, 2] = 0.0
    many, slopes, points = informations(stack), gradient(stack), pointwise(stack)
    floored = gradient(stack, floor=ONE_RECORD)
    assert many.shape == (5, 4)
    for at in np.ndindex(5, 4):
        assert many[at] == pytest.approx(by_definition(stack[at]) if stack[at].any() else 0.0, abs=1e-12)
        np.testing.assert_allclose(slopes[at], gradient(stack[at]), rtol=1e-12)
        np.testing.assert_allclose(points[at], pointwise(stack[at]), rtol=1e-12)
        np.testing.assert_allclose(floored[at], gradient(stack[at], floor=ONE_RECORD), rtol=1e-12)


def test_marginals_may_come_from_elsewhere() -> None:
    x, y, n = np.array([210.0, 190.0]), np.array([150.0, 130.0, 120.0]), 400.0
    wanted = math.log2(n)
    wanted += sum(c * math.log2(c) for c in TABLE.ravel()) / n
    wanted -= sum(c * math.log2(c) for c in (*x, *y)) / n
    assert information(TABLE, x, y, n) == pytest.approx(wanted)
    assert information(TABLE, x, y, 0.0) == 0.0
    own = information(TABLE, TABLE.sum(axis=1), TABLE.sum(axis=0), float(TABLE.sum()))
    assert own == pytest.approx(information(TABLE))


def test_sums_of_nothing_are_nothing() -> None:
    found = from_sums(np.array([5.0, 1.0]), np.array([2.0, 3.0]), np.array([4.0, -1.0]))
    np.testing.assert_allclose(found, [2.75, 0.0])


def test_gradient_is_pmi_minus_information_not_the_printed_sign() -> None:
    found = numeric(TABLE)
    np.testing.assert_allclose(gradient(TABLE), found, atol=1e-9)
    printed = -(pointwise(TABLE) + information(TABLE)) / TABLE.sum()
    assert np.abs(printed - found).max() > 0.5 * np.abs(found).max()


def test_a_floor_changes_nothing_above_it() -> None:
    np.testing.assert_allclose(gradient(TABLE, floor=ONE_RECORD), gradient(TABLE), rtol=1e-12)
    np.testing.assert_allclose(pointwise(TABLE, floor=ONE_RECORD), pointwise(TABLE), rtol=1e-12)


def test_gradient_of_empty_cells() -> None:
    np.testing.assert_array_equal(gradient(np.zeros((2, 2))), 0.0)
    np.testing.assert_array_equal(gradient(np.zeros((2, 2)), floor=ONE_RECORD), 0.0)
    holed = np.array([[50.0, -3.0], [20.0, 50.0]])
    assert gradient(holed)[0, 1] == 0.0
    filled = np.array([[50.0, 1.0], [20.0, 50.0]])
    # With a floor the empty cell has about the slope of a cell of one record: filling it costs information.
    assert gradient(holed, floor=ONE_RECORD)[0, 1] == pytest.approx(gradient(filled)[0, 1], rel=0.1)
    assert gradient(holed, floor=ONE_RECORD)[0, 1] < 0


def test_ratio_is_one_for_independence_and_for_empty_cells() -> None:
    np.testing.assert_allclose(ratio(np.outer([1.0, 3.0], [2.0, 5.0])), 1.0)
    assert ratio(np.array([[0.0, 2.0], [2.0, 2.0]]))[0, 0] == 1.0
    assert ratio(np.diag([2.0, 2.0]))[0, 0] == pytest.approx(2.0)


def test_xlogx_and_its_slope() -> None:
    counts = np.array([-3.0, 0.0, 0.5, 1.0, 8.0])
    np.testing.assert_allclose(xlogx(counts), [0.0, 0.0, -0.5, 0.0, 24.0])
    above = counts[3:] + 1.0
    slope = (xlogx(above + 1e-5) - xlogx(above - 1e-5)) / 2e-5
    np.testing.assert_allclose(xlogx_slope(above, floor=ONE_RECORD), slope, rtol=1e-8)
    assert xlogx_slope(np.zeros(1), floor=ONE_RECORD)[0] == pytest.approx(math.log2(math.e))


def test_logarithms_of_counts_are_taken_in_two_places() -> None:
    """Here and in the kernels of the search; `data/network.py` stores probabilities on a scale of log2."""
    root = Path(fedwise.__file__).parent
    found = set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in ("log2", "xlogy", "rel_entr"):
                found.add(path.relative_to(root).as_posix())
    assert found == {"objective/information.py", "search/kernels.py", "data/network.py"}
