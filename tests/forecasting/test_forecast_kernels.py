"""The compiled solve and scoring against numpy, and the sample against its tables."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from fedwise.errors import FedwiseError
from fedwise.forecasting import kernels
from fedwise.forecasting.anchor import Anchor, level_sums, pair_sums
from fedwise.forecasting.design import Design
from fedwise.forecasting.moments import consistent_counts, moments
from fedwise.forecasting.thinning import denoise, thin
from fedwise.objective.sample import Sample, draw
from forecasting.forecast_pools import codes_of, exact_estimates


def row_of(hessian: np.ndarray, gradient: np.ndarray, records: float, members: float) -> np.ndarray:
    low = np.tril_indices(len(gradient))
    return np.concatenate([hessian[low], gradient, [records, members]])


@given(st.integers(1, 40), st.integers(0, 10_000))
@hypothesis_settings(max_examples=40, deadline=None)
def test_solve_is_numpys(p: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(p, p + 3))
    hessian, gradient = root @ root.T, rng.normal(size=p)
    solver = kernels.Solver(rng.normal(size=p), np.eye(p), 0.02, 0.3)
    records, members = 50.0, 4.0
    beta = np.empty(p)
    kernels.solve(solver, row_of(hessian, gradient, records, members), np.empty((p, p)), beta)
    penalty = np.full(p, max(0.02 * records, 0.3 * 2.0))
    penalty[0] = 1e-9 * records
    expected = solver.beta + np.linalg.solve(hessian + np.diag(penalty), gradient)
    np.testing.assert_allclose(beta, expected, rtol=1e-7, atol=1e-9)


def test_solve_repairs_a_matrix_that_is_not_positive_definite() -> None:
    hessian = np.diag([10.0, -3.0, 5.0])
    solver = kernels.Solver(np.zeros(3), np.eye(3), 0.001, 0.0)
    beta = np.empty(3)
    kernels.solve(solver, row_of(hessian, np.ones(3), 100.0, 1.0), np.empty((3, 3)), beta)
    # 0.1 doubles to 3.2, the first ridge above 3.
    np.testing.assert_allclose(beta, [0.1, 1 / 0.2, 1 / 8.2], rtol=1e-6)


def test_no_records_leave_the_anchor() -> None:
    solver = kernels.Solver(np.array([0.5, -1.0]), np.eye(2), 0.001, 0.0)
    beta = np.empty(2)
    kernels.solve(solver, row_of(np.eye(2), np.ones(2), -5.0, 1.0), np.empty((2, 2)), beta)
    np.testing.assert_array_equal(beta, [0.5, -1.0])


@pytest.mark.parametrize("size", [1, 511, 1300])
def test_scores_are_those_of_the_dense_matrix(size: int) -> None:
    rng = np.random.default_rng(size)
    sizes, variables, first = (9, 40, 3, 7, 2), (0, 1, 2, 3), np.array([1, 10, 50, 53])
    codes = np.stack([rng.integers(0, s, size) for s in sizes]).astype(np.int16)
    group, chance = rng.integers(0, 3, size), rng.random(size)
    spec = kernels.scorer(
        codes, group, chance, groups=3, variables=variables, first=first, sizes=sizes, threshold=0.2, ramp=0.5
    )
    levels = rng.normal(size=60)
    rates = np.empty((3, 2))
    kernels.score(spec, levels, np.empty(len(spec.parts), np.float32), rates)
    scores = levels[0] + sum(levels[first[i] + codes[v]] for i, v in enumerate(variables))
    yes = np.clip(0.5 + (scores - 0.2) / 1.0, 0, 1)
    for g in range(3):
        here = group == g
        for label, weight in enumerate((1 - chance, chance)):
            mass = weight[here].sum()
            expected = (yes * weight)[here].sum() / mass if mass else 0.0
            assert rates[g, label] == pytest.approx(expected, abs=1e-5)


def test_moments_are_sums_over_rows() -> None:
    codes = [codes_of(i, rows=200) for i in range(3)]
    estimates = exact_estimates(codes)
    cells, marginals, totals = consistent_counts(estimates)
    design = Design.of(estimates.schema, marginals.sum(axis=0))
    found = moments(design, estimates.layout, cells, marginals, totals)
    for i, c in enumerate(codes):
        dense = np.zeros((c.shape[1], design.width))
        np.put_along_axis(dense, design.indicators(c), 1.0, axis=1)
        np.testing.assert_allclose(found.gram[i], dense.T @ dense, atol=1e-9)
        np.testing.assert_allclose(found.cross[i], dense.T @ c[estimates.schema.target], atol=1e-9)
        np.testing.assert_allclose(design.matrix(c), dense @ design.projection, atol=1e-12)


def test_sums_over_records_are_those_of_the_dense_matrix() -> None:
    rng = np.random.default_rng(0)
    ones = np.stack([np.zeros(50, np.int64), rng.integers(1, 4, 50), rng.integers(4, 9, 50)], axis=1)
    weights, values = rng.random(50), rng.normal(size=50)
    dense = np.zeros((50, 9))
    np.put_along_axis(dense, ones, 1.0, axis=1)
    gram, weighted = pair_sums(ones, weights, values, 9)
    np.testing.assert_allclose(gram, (dense * weights[:, None]).T @ dense)
    np.testing.assert_allclose(weighted, (dense * (weights * values)[:, None]).T @ dense)
    tensor, right = level_sums(ones, weights, values, 9)
    np.testing.assert_allclose(tensor, np.einsum("r,ra,ri,rj->aij", weights, dense, dense, dense))
    np.testing.assert_allclose(right, np.einsum("r,r,ra,ri->ai", weights, values, dense, dense))


def test_gradient_of_the_pool_is_zero_and_curvature_its_own() -> None:
    codes = [codes_of(i) for i in range(4)]
    estimates = exact_estimates(codes)
    cells, marginals, totals = (part.sum(axis=0) for part in consistent_counts(estimates))
    design = Design.of(estimates.schema, marginals)
    pool = moments(design, estimates.layout, cells, marginals, totals)
    everyone = np.concatenate(codes, axis=1)
    sample = Sample(everyone, np.full(everyone.shape[1], 1.0 / everyone.shape[1]))
    anchor = Anchor.logistic(design, sample, pool)
    np.testing.assert_allclose(anchor.gradient(pool) / totals, 0.0, atol=1e-12)
    dense = np.zeros((everyone.shape[1], design.width))
    np.put_along_axis(dense, design.indicators(everyone), 1.0, axis=1)
    p = 1 / (1 + np.exp(-dense @ design.projection @ anchor.beta))
    exact = (dense * (p * (1 - p))[:, None]).T @ dense
    np.testing.assert_allclose(anchor.hessian(pool) / totals, exact / totals, atol=1e-4)


def test_raked_sample_has_the_populations_tables() -> None:
    codes = np.concatenate([codes_of(i) for i in range(6)], axis=1)
    estimates = exact_estimates([codes])
    layout = estimates.layout
    cells, marginals, totals = (part[0] for part in consistent_counts(estimates))
    shares = denoise(layout, cells, marginals, float(totals), np.zeros(layout.tables))
    np.testing.assert_allclose(shares, cells / totals, atol=1e-12)
    sample = draw(layout, shares, [4, 3, 0, 1, 2], records=20_000, seed=1)
    assert sample.weights.sum() == pytest.approx(1.0)
    for j, (x, y) in enumerate(layout.pairs):
        table = np.zeros(layout.shapes[j])
        np.add.at(table, (sample.codes[x], sample.codes[y]), sample.weights)
        np.testing.assert_allclose(table.ravel(), shares[layout.slice(j)], atol=2e-4)


def test_noise_is_shrunk_to_independence() -> None:
    codes = codes_of(0, rows=3000)
    codes[1] = np.random.default_rng(3).integers(0, 5, 3000)  # JOB tells nothing
    estimates = exact_estimates([codes])
    layout = estimates.layout
    cells, marginals, totals = (part[0] for part in consistent_counts(estimates))
    noisy = cells + np.random.default_rng(4).normal(0, 40, cells.shape)
    shares = denoise(layout, noisy, marginals, float(totals), np.full(layout.tables, 1600.0))
    assert np.abs(shares - cells / totals).sum() < 0.7 * np.abs(noisy - cells).sum() / totals
    assert (shares >= 0).all()


def test_empty_population_is_refused() -> None:
    layout = exact_estimates([codes_of(0)]).layout
    with pytest.raises(FedwiseError, match="must have records"):
        denoise(layout, np.zeros(layout.cells), np.zeros(sum(layout.sizes)), 0.0, np.zeros(layout.tables))


def test_thinning_keeps_shares() -> None:
    rng = np.random.default_rng(0)
    weights = rng.random(5000)
    weights /= weights.sum()
    codes = rng.integers(0, 4, (1, 5000)).astype(np.int16)
    kept, chosen = thin(Sample(codes, weights), np.argsort(codes[0], kind="stable"), 1000)
    np.testing.assert_array_equal(kept.codes, codes[:, chosen])
    # Systematic along the sorted codes: every level's share is right to one record.
    wanted = np.bincount(codes[0], weights, 4)
    np.testing.assert_allclose(np.bincount(kept.codes[0], minlength=4) / 1000, wanted, atol=1.01e-3)


def test_levels_that_noise_hides_get_no_input() -> None:
    estimates = exact_estimates([codes_of(0)])
    marginals = consistent_counts(estimates)[1].sum(axis=0)
    marginals[4] = 5.0  # the first level of JOB
    all_levels = Design.of(estimates.schema, marginals)
    fewer = Design.of(estimates.schema, marginals, errors=np.full(len(marginals), 3.0))
    assert all_levels.inputs - fewer.inputs == 1
