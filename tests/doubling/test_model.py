"""The pairwise model: its samples against brute force, its fit, and what refinement keeps and changes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import fedwise as fw
from fedwise.doubling import kernels
from fedwise.doubling.model import Grid, Model, shares_of
from fedwise.schema.layout import Layout

SIZES = (2, 3, 2, 2)
NAMES = ("a", "b", "c", "d")
PAIRS = tuple(itertools.combinations(range(4), 2))
LAYOUT = Layout(NAMES, SIZES, PAIRS)


def joint(layout: Layout, cells: np.ndarray) -> np.ndarray:
    """Every cell of the whole domain of a log-linear model of these pair factors, by definition."""
    out = np.ones(layout.sizes)
    for codes in itertools.product(*(range(size) for size in layout.sizes)):
        for j, (x, y) in enumerate(layout.pairs):
            out[codes] *= cells[layout.slice(j)].reshape(layout.shapes[j])[codes[x], codes[y]]
    return out / out.sum()


def pairs_of(layout: Layout, table: np.ndarray) -> np.ndarray:
    """Pair tables of a whole joint table, flat."""
    rest = [tuple(set(range(table.ndim)) - {x, y}) for x, y in layout.pairs]
    return np.concatenate([table.sum(axis=axes).ravel() for axes in rest])


def both_ways(layout: Layout, cells: np.ndarray) -> np.ndarray:
    """Factors as the kernels store them."""
    turned = [cells[layout.slice(j)].reshape(layout.shapes[j]).T.ravel() for j in range(layout.tables)]
    return np.concatenate([cells, *turned])


@pytest.fixture(scope="module")
def truth() -> tuple[np.ndarray, np.ndarray]:
    """Factors drawn at random, and the joint table they stand for."""
    cells = np.exp(np.random.default_rng(4).normal(0, 0.8, LAYOUT.cells))
    return cells, joint(LAYOUT, cells)


def counted(rows: np.ndarray, sizes: tuple[int, ...] = SIZES) -> np.ndarray:
    """Shares of the whole joint table of records."""
    flat = np.ravel_multi_index(tuple(rows.T.astype(np.int64)), sizes)
    return np.bincount(flat, minlength=int(np.prod(sizes))).reshape(sizes) / len(rows)


def test_samples_have_the_joint_table_of_the_factors(truth) -> None:
    cells, table = truth
    grid = Grid(LAYOUT)
    rows = np.zeros((200_000, 4), np.int16)
    model = Model(grid, both_ways(LAYOUT, cells), rows)
    found = counted(model.sample(200_000, sweeps=30, seed=1))
    # Standard error of a share of 200,000 records is at most 0.0011: five of them, over 24 cells, fail once in 70,000.
    assert np.abs(found - table).max() < 0.0056
    assert np.abs(counted(model.sample(200_000, sweeps=30, seed=1)) - found).max() == 0


def test_chances_are_the_conditional_shares(truth) -> None:
    cells, table = truth
    rows = np.array(list(itertools.product(*(range(size) for size in SIZES))), np.int16)
    found = Model(Grid(LAYOUT), both_ways(LAYOUT, cells), rows).chances(rows, 1)
    for row, chance in zip(rows, found, strict=True):
        slices = table[row[0], :, row[2], row[3]]
        np.testing.assert_allclose(chance, slices / slices.sum(), rtol=1e-12)


def test_a_fitted_model_has_the_joint_table_that_its_pairs_imply(truth) -> None:
    """Pairs determine a log-linear model of pairs, so the whole joint table comes back, not only the pairs."""
    _, table = truth
    grid = Grid(LAYOUT)
    model = Model.fit(grid, pairs_of(LAYOUT, table), records=20_000, sweeps=40, seed=0)
    found = counted(model.sample(200_000, sweeps=20, seed=2))
    off = np.abs(found - table).sum() / 2
    # Sampling alone puts 200,000 records of 24 cells about 0.004 off; independence is far away.
    alone = np.einsum("a,b,c,d->abcd", *(table.sum(axis=tuple({0, 1, 2, 3} - {i})) for i in range(4)))
    assert off < 0.015
    assert np.abs(alone - table).sum() / 2 > 10 * off


def test_a_moved_model_has_the_other_tables(truth) -> None:
    _, table = truth
    other = table ** np.random.default_rng(8).uniform(0.6, 1.4, table.shape)
    other /= other.sum()
    base, wanted = pairs_of(LAYOUT, table), pairs_of(LAYOUT, other)
    model = Model.fit(Grid(LAYOUT), base, records=10_000, sweeps=20, seed=0)
    moved = model.moved(wanted, records=10_000, sweeps=20, seed=1, base=base)
    found = pairs_of(LAYOUT, counted(moved.sample(100_000, sweeps=10, seed=2)))
    assert np.abs(found - wanted).max() < 0.012
    assert np.abs(base - wanted).max() > 0.03


def test_refinement_fits_the_counts_and_keeps_structure_beyond_pairs() -> None:
    """Three variables whose third-order structure the model has; refined records match pairs and keep it."""
    layout = Layout(("a", "b", "c"), (3, 3, 3), ((0, 1), (0, 2), (1, 2)))
    cells = np.exp(np.random.default_rng(1).normal(0, 1.0, layout.cells))
    table = joint(layout, cells)
    grid = Grid(layout)
    model = Model(grid, both_ways(layout, cells), np.zeros((3_000, 3), np.int16))
    rows = model.sample(3_000, sweeps=20, seed=3)
    goal = pairs_of(layout, table) * 3_000
    counts = np.empty(layout.cells)

    def off(records: np.ndarray) -> float:
        kernels.tally(records, grid.pairs, grid.offsets, grid.sizes, counts)
        return float(np.abs(counts - goal).max())

    refined = model.refined(rows, goal, sweeps=10, seed=4)
    assert off(rows) > 20
    # A change must gain something in each table, so a cell may stay off by a few records, far less than a sample's.
    assert off(refined) <= 5
    before, after = (np.abs(counted(r, (3, 3, 3)) - table).sum() for r in (rows, refined))
    assert after < before


def test_impossible_cells_stay_empty() -> None:
    layout = Layout(("a", "b"), (2, 3), ((0, 1),))
    shares = np.array([0.3, 0.2, 0.0, 0.0, 0.1, 0.4])
    model = Model.fit(Grid(layout), shares, records=5_000, sweeps=10, seed=0)
    refined = model.refined(model.sample(1_000, sweeps=3, seed=1), shares * 1_000, sweeps=5, seed=2)
    found = counted(refined, (2, 3)).ravel()
    np.testing.assert_allclose(found, shares, atol=0.008)
    assert found[2] == found[3] == 0


def test_pairs_that_were_not_asked_for_are_left_free() -> None:
    layout = Layout(("a", "b", "c"), (2, 2, 2), ((0, 1), (1, 2)))
    shares = np.array([0.4, 0.1, 0.1, 0.4, 0.4, 0.1, 0.1, 0.4])
    model = Model.fit(Grid(layout), shares, records=10_000, sweeps=20, seed=0)
    found = counted(model.sample(100_000, sweeps=5, seed=1), (2, 2, 2)).sum(axis=1)
    # a and c are independent given b: P(a = c) = 0.8² + 0.2².
    assert found[0, 0] + found[1, 1] == pytest.approx(0.68, abs=0.015)


def test_a_variable_without_a_table_is_refused() -> None:
    layout = Layout(("a", "b", "c"), (2, 2, 2), ((0, 1),))
    with pytest.raises(fw.FedwiseError, match="got none with 'c'"):
        Model.fit(Grid(layout), np.full(4, 0.25), records=10, sweeps=1, seed=0)


def test_shares_of_a_table_without_records_are_even() -> None:
    layout = Layout(("a", "b"), (2, 2), ((0, 1),))
    np.testing.assert_allclose(shares_of(layout, np.array([-1.0, 0.0, 0.0, -3.0])), 0.25)
    np.testing.assert_allclose(shares_of(layout, np.array([1.0, -2.0, 3.0, 0.0])), [0.25, 0, 0.75, 0])
