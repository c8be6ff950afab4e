"""Consistency: least squares in closed form, and the χ² screen."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from scipy import stats

from estimation.noisy_pools import truth
from fedwise.errors import PoolError
from fedwise.estimation.consistency import consistent, join, screen, split, variances
from fedwise.schema.layout import Layout

SIZES = (3, 4, 2, 5)
PAIRS = tuple(itertools.combinations(range(4), 2))
LAYOUT = Layout(("a", "b", "c", "d"), SIZES, PAIRS)
SIGMAS = np.array([3.0, 1.0, 2.0, 4.0, 5.0, 6.0])


def one_hot_basis(layout: Layout) -> np.ndarray:
    """Orthonormal basis of all tables that one set of records can give."""
    columns = []
    for record in itertools.product(*(range(size) for size in layout.sizes)):
        cells = np.zeros(layout.cells)
        for j, (x, y) in enumerate(layout.pairs):
            cells[layout.offsets[j] + record[x] * layout.sizes[y] + record[y]] = 1.0
        columns.append(cells)
    left, values, _ = np.linalg.svd(np.array(columns).T, full_matrices=False)
    return left[:, values > 1e-9]


@pytest.mark.parametrize(
    "pairs",
    [PAIRS, PAIRS[:4], ((0, 1), (2, 3)), ((0, 1),)],
    ids=["all pairs", "some pairs", "no shared variable", "one table"],
)
def test_adjustment_is_generalised_least_squares(pairs: tuple[tuple[int, int], ...]) -> None:
    layout = Layout(LAYOUT.names, SIZES, pairs)
    sigmas = SIGMAS[: len(pairs)]
    noisy = np.random.default_rng(1).normal(50, 20, layout.cells)
    basis = one_hot_basis(layout)
    precision = 1 / layout.per_cell(sigmas) ** 2
    fitted = basis @ np.linalg.solve(basis.T @ (precision[:, None] * basis), basis.T @ (precision * noisy))
    cells, _, _, found = consistent(noisy[None], layout, sigmas)
    np.testing.assert_allclose(cells[0], fitted, atol=1e-9)
    assert found.statistic[0] == pytest.approx(np.sum((noisy - fitted) ** 2 * precision), abs=1e-9)
    assert found.dof == layout.cells - basis.shape[1]


@pytest.mark.parametrize("sigmas", [SIGMAS, np.zeros(6)], ids=["noisy", "exact"])
def test_consistent_counts_come_back_unchanged(sigmas: np.ndarray) -> None:
    known = truth(3, sizes=(3, 4))
    scale = np.resize(sigmas, known.layout.tables)
    cells, marginals, totals, found = consistent(known.exact, known.layout, scale)
    np.testing.assert_allclose(cells, known.exact, atol=1e-9)
    np.testing.assert_allclose(totals, [c.shape[1] for c in known.codes])
    np.testing.assert_allclose(marginals[1, :3], np.bincount(known.codes[1][0], minlength=3))
    assert (found.p_value > 0.999).all()


def test_adjusted_tables_agree_and_split_inverts() -> None:
    noisy = np.random.default_rng(3).normal(100, 30, (4, LAYOUT.cells))
    cells, marginals, totals, _ = consistent(noisy, LAYOUT, SIGMAS)
    at = np.concatenate([[0], np.cumsum(SIZES)])
    for j, (x, y) in enumerate(PAIRS):
        table = LAYOUT.view(cells, j)
        np.testing.assert_allclose(table.sum(axis=2), marginals[:, at[x] : at[x + 1]])
        np.testing.assert_allclose(table.sum(axis=1), marginals[:, at[y] : at[y + 1]])
        np.testing.assert_allclose(table.sum(axis=(1, 2)), totals)
    again = join(split(cells, LAYOUT, SIGMAS)[0], LAYOUT)
    np.testing.assert_allclose(again[0], cells, atol=1e-9)


def test_p_values_are_uniform_under_the_plans_noise() -> None:
    # Kolmogorov–Smirnov at 1e-4: one false alarm in ten thousand seeds.
    noisy = 100 + np.random.default_rng(5).standard_normal((3000, LAYOUT.cells)) * LAYOUT.per_cell(SIGMAS)
    base = np.concatenate([np.full(a * b, 1200 / (a * b)) for a, b in LAYOUT.shapes])
    found = screen(noisy - 100 + base, LAYOUT, SIGMAS)
    assert stats.kstest(found.p_value, "uniform").pvalue > 1e-4


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (lambda m: m.__setitem__((0, slice(0, 12)), m[0, :12] + 40), "one table from another data set"),
        (lambda m: m.__setitem__(0, m[0] + np.random.default_rng(8).normal(0, 12, m.shape[1])), "more noise"),
    ],
    ids=["tampered", "noisier"],
)
def test_screen_finds_what_noise_cannot_explain(harm: object, why: str) -> None:
    base = np.concatenate([np.full(a * b, 1200 / (a * b)) for a, b in LAYOUT.shapes])
    noisy = base + np.random.default_rng(6).standard_normal((2, LAYOUT.cells)) * LAYOUT.per_cell(SIGMAS)
    harm(noisy)  # type: ignore[operator]
    found = screen(noisy, LAYOUT, SIGMAS)
    assert found.p_value[0] < 1e-6, why
    assert found.p_value[1] > 1e-4


def test_exact_tables_that_disagree_are_impossible() -> None:
    matrix = np.ones((1, LAYOUT.cells))
    assert screen(matrix, LAYOUT, np.zeros(6)).p_value[0] == 0.0


def test_part_variances_match_simulation() -> None:
    noise = np.random.default_rng(9).standard_normal((20_000, LAYOUT.cells)) * LAYOUT.per_cell(SIGMAS)
    parts, _ = split(noise, LAYOUT, SIGMAS)
    known = variances(LAYOUT, SIGMAS)
    # 20,000 draws: relative error of a variance is 1%; 6% is six standard errors.
    assert parts.totals.var() == pytest.approx(known.total, rel=0.06)
    at = np.concatenate([[0], np.cumsum(SIZES)])
    for x, size in enumerate(SIZES):
        assert parts.effects[:, at[x]].var() == pytest.approx(known.effects[x] * (1 - 1 / size), rel=0.06)
    for j, (a, b) in enumerate(LAYOUT.shapes):
        seen = parts.interactions[:, LAYOUT.offsets[j]].var()
        assert seen == pytest.approx(SIGMAS[j] ** 2 * (1 - 1 / a) * (1 - 1 / b), rel=0.06)


def test_blocks_do_not_change_the_answer_and_ten_thousand_clients_take_seconds() -> None:
    sizes = (8,) * 8
    layout = Layout(tuple("abcdefgh"), sizes, tuple(itertools.combinations(range(8), 2)))
    matrix = np.random.default_rng(2).integers(0, 100, (10_000, layout.cells))
    began = time.perf_counter()
    found = screen(matrix, layout, np.ones(layout.tables))
    assert time.perf_counter() - began < 20
    alone = screen(matrix[9_990:], layout, np.ones(layout.tables))
    np.testing.assert_allclose(found.statistic[9_990:], alone.statistic)


@pytest.mark.parametrize(
    ("matrix", "sigmas", "message"),
    [
        (np.zeros((2, 5)), SIGMAS, "matrix must have shape"),
        (np.zeros((2, LAYOUT.cells)), SIGMAS[:3], "sigmas must have shape"),
        (np.zeros((2, LAYOUT.cells)), -SIGMAS, "sigmas must be finite"),
        (np.full((2, LAYOUT.cells), np.nan), SIGMAS, "matrix must hold finite counts"),
    ],
    ids=["cells", "tables", "negative", "nan"],
)
def test_wrong_input_is_refused(matrix: np.ndarray, sigmas: np.ndarray, message: str) -> None:
    with pytest.raises(PoolError, match=message):
        screen(matrix, LAYOUT, sigmas)


def test_a_pool_without_tables_is_refused() -> None:
    with pytest.raises(PoolError, match="at least one table"):
        screen(np.zeros((1, 0)), Layout(("a",), (2,), ()), np.zeros(0))
