"""Shrinkage: exact without noise, better than the released counts with it, finite always."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

import fedwise as fw
from estimation.noisy_pools import truth
from fedwise.errors import FedwiseError, PoolError
from fedwise.estimation import Estimates, estimate
from fedwise.estimation.consistency import consistent
from fedwise.estimation.fitting import centre, fit, margin_factors
from fedwise.estimation.keeping import positive
from fedwise.estimation.redraw import redraw, redraws
from fedwise.estimation.shrinkage import shrink
from fedwise.estimation.uncertainty import standard_error
from fedwise.objective.pfl import Weights, loss
from fedwise.pool.pool import Pool
from fedwise.search.problem import PFL, Problem


def flat(tables: int, sigma: float) -> np.ndarray:
    return np.full(tables, sigma)


def make_pool(known, matrix, epsilon: float = 1.0) -> Pool:
    plan = fw.plan(known.schema, epsilon=epsilon)
    return Pool(
        [f"c{i}" for i in range(len(matrix))], plan, np.asarray(matrix, dtype=np.int64), simulated=True
    )


def test_without_noise_counts_come_back_exactly() -> None:
    known = truth()
    found = shrink(known.exact, known.layout, np.zeros(known.layout.tables))
    np.testing.assert_allclose(found.cells, known.exact, atol=1e-9)
    np.testing.assert_allclose(found.totals, [c.shape[1] for c in known.codes])


@pytest.mark.parametrize("estimator", ["shrinkage", "plain"])
def test_at_epsilon_inf_the_loss_is_that_of_the_raw_rows(estimator: str) -> None:
    known = truth(6, rows=900)
    estimates = estimate(make_pool(known, known.exact, math.inf), estimator)
    members = [0, 2, 5]
    codes = np.concatenate([known.codes[i] for i in members], axis=1)
    signed = {("S", "T"): 2.0}
    direct = 0.0
    weights = Weights()
    for x in range(5):
        for y in range(x + 1, 5):
            pair = known.schema.names[x], known.schema.names[y]
            weight = signed.get(pair) or (
                weights.beta if "S" in pair else -weights.lam if "T" in pair else weights.gamma
            )
            direct += weight * _information_of_rows(codes[x], codes[y])
    assert loss(estimates, members, weights) == pytest.approx(direct, abs=1e-9)


def _information_of_rows(x: np.ndarray, y: np.ndarray) -> float:
    """I = H(X) + H(Y) − H(X,Y) by counting distinct rows: nothing shared with the library."""

    def entropy(rows: np.ndarray) -> float:
        _, counts = np.unique(rows, axis=0, return_counts=True)
        p = counts / counts.sum()
        return float(-(p * np.log2(p)).sum())

    return entropy(x[:, None]) + entropy(y[:, None]) - entropy(np.stack([x, y], axis=1))


@pytest.mark.parametrize(("sigma", "most"), [(10.0, 0.95), (40.0, 0.6), (150.0, 0.3)])
def test_cells_are_nearer_the_truth_than_consistency_alone(sigma: float, most: float) -> None:
    known = truth(20)
    sigmas = flat(known.layout.tables, sigma)
    matrix = known.noisy(sigmas, seed=4)
    shrunk = shrink(matrix, known.layout, sigmas).cells
    adjusted = consistent(matrix, known.layout, sigmas)[0]
    assert np.mean((shrunk - known.exact) ** 2) < most * np.mean((adjusted - known.exact) ** 2)


def test_little_noise_changes_little() -> None:
    known = truth(10)
    sigmas = flat(known.layout.tables, 0.05)
    found = shrink(known.noisy(np.zeros_like(sigmas), 0), known.layout, sigmas)
    assert np.abs(found.cells - known.exact).max() < 1.0


def test_estimates_are_positive_consistent_and_add_up() -> None:
    known = truth(8)
    sigmas = np.linspace(20, 120, known.layout.tables)
    estimates = known.estimates(known.noisy(sigmas, 1), sigmas)
    assert (estimates.cells >= 0).all()
    for j in range(known.layout.tables):
        x, y = known.layout.sides(j)
        table = known.layout.view(estimates.cells, j)
        np.testing.assert_allclose(table.sum(axis=2), estimates.marginals[:, x], atol=1e-6)
        np.testing.assert_allclose(table.sum(axis=1), estimates.marginals[:, y], atol=0.1)
    np.testing.assert_allclose(estimates.marginals[:, :4].sum(axis=1), estimates.totals)


def test_overwhelming_noise_leaves_every_client_with_the_pools_proportions() -> None:
    known = truth(30)
    sigmas = flat(known.layout.tables, 3000.0)
    found = shrink(known.noisy(sigmas, 2), known.layout, sigmas)
    proportions = found.marginals[:, -2:] / found.totals[:, None]
    true = known.exact[:, -4:].reshape(-1, 2, 2).sum(axis=1) / known.exact[:, -4:].sum(axis=1)[:, None]
    assert proportions.std(axis=0).max() < true.std(axis=0).max()


def _with(known, change) -> np.ndarray:
    matrix = known.noisy(flat(known.layout.tables, 30.0), 3)
    change(matrix, known)
    return matrix


EDGES = {
    "one client": lambda m, k: None,
    "a negative total": lambda m, k: m.__setitem__(0, m[0] - 2000),
    "a hugely negative total": lambda m, k: m.__setitem__(0, m[0] - 10**7),
    "an all-zero table": lambda m, k: m.__setitem__((slice(None), k.layout.slice(2)), 0),
    "an all-zero client": lambda m, k: m.__setitem__(0, 0),
    "everything zero": lambda m, k: m.__setitem__(slice(None), 0),
    "everything negative": lambda m, k: m.__setitem__(slice(None), -500),
    "a level that never occurs": lambda m, k: [
        k.layout.view(m, j)[:, 3].__setitem__(slice(None), 0)
        for j, p in enumerate(k.layout.pairs)
        if p[0] == 0
    ],
}


@pytest.mark.parametrize("sigma", [0.0, 1e-6, 30.0, 1e5])
@pytest.mark.parametrize("edge", EDGES)
def test_odd_pools_give_finite_numbers(edge: str, sigma: float) -> None:
    known = truth(1 if edge == "one client" else 5, rows=400)
    matrix = _with(known, EDGES[edge])
    sigmas = flat(known.layout.tables, sigma)
    estimates = known.estimates(matrix, sigmas)
    assert np.isfinite(estimates.cells).all()
    assert np.isfinite(estimates.marginals).all()
    assert np.isfinite(loss(estimates, range(len(matrix)), Weights()))
    error = standard_error(estimates, range(len(matrix)), Weights())
    assert np.isfinite(error)
    assert error >= 0
    if sigma > 0:
        assert (estimates.totals > 0).all()
        assert np.isfinite(redraw(estimates, np.random.default_rng(0)).cells).all()


def test_the_prior_mean_of_a_noisy_total_is_positive_and_right() -> None:
    noisy = np.array([1000.0, 10.0, 0.0, -30.0, -1e6])
    found = positive(noisy, 100.0)
    assert (found > 0).all()
    assert found[0] == pytest.approx(1000.0)
    grid = np.linspace(0, 200, 200_001)
    for value, seen in zip(noisy[1:4], found[1:4], strict=True):
        density = np.exp(-0.5 * ((grid - value) / 10) ** 2)
        assert seen == pytest.approx(np.sum(grid * density) / np.sum(density), rel=1e-3)
    assert (np.diff(positive(np.linspace(-500, 500, 2001), 100.0)) > 0).all()


def test_fitting_keeps_odds_ratios_and_meets_marginals() -> None:
    rng = np.random.default_rng(0)
    table, rows, columns = rng.random((3, 4)), rng.random((2, 3)), rng.random((2, 4))
    rows, columns = rows / rows.sum(1, keepdims=True), columns / columns.sum(1, keepdims=True)
    fitted = fit(table, rows, columns, rounds=200)
    np.testing.assert_allclose(fitted.sum(axis=2), rows)
    np.testing.assert_allclose(fitted.sum(axis=1), columns, atol=1e-7)
    np.testing.assert_allclose(centre(np.log(fitted[0])), centre(np.log(table)), atol=1e-9)


def test_margin_factors_have_the_sums_asked_for() -> None:
    rng = np.random.default_rng(1)
    table, carried = rng.random((3, 5)), rng.normal(size=(3, 5))
    down, across = margin_factors(table, carried)
    made = table * (down[:, None] + across)
    np.testing.assert_allclose(made.sum(axis=0), carried.sum(axis=0), atol=1e-6)
    np.testing.assert_allclose(made.sum(axis=1), carried.sum(axis=1), atol=1e-6)


def test_plain_keeps_the_released_counts() -> None:
    known = truth(4)
    matrix = known.noisy(flat(known.layout.tables, 30.0), 5)
    estimates = estimate(make_pool(known, matrix), "plain")
    np.testing.assert_array_equal(estimates.cells, matrix)
    np.testing.assert_allclose(estimates.marginals[:, known.layout.marginal(0)].sum(axis=1), estimates.totals)


def test_wrong_names_and_empty_pools_are_refused() -> None:
    known = truth(2)
    with pytest.raises(FedwiseError, match="did you mean 'shrinkage'"):
        estimate(make_pool(known, known.exact), "shrink")
    with pytest.raises(PoolError, match="at least one release"):
        estimate(make_pool(known, np.zeros((0, known.layout.cells))))


def test_redraws_repeat_with_the_generator_and_leave_exact_counts_alone() -> None:
    known = truth(5)
    sigmas = flat(known.layout.tables, 20.0)
    estimates = known.estimates(known.noisy(sigmas, 1), sigmas)
    first, second = (redraw(estimates, np.random.default_rng(3)) for _ in range(2))
    np.testing.assert_array_equal(first.cells, second.cells)
    assert not np.array_equal(first.cells, estimates.cells)
    exact = known.true_estimates()
    assert redraw(exact, np.random.default_rng(3)) is exact


def test_the_first_redraws_are_remembered_and_are_those_of_their_seed() -> None:
    known = truth(5)
    sigmas = flat(known.layout.tables, 20.0)
    estimates, fresh = (known.estimates(known.noisy(sigmas, 1), sigmas) for _ in range(2))
    made = {
        (seed, number): found
        for seed in (0, 7)
        for number, found in enumerate(redraws(estimates, seed, range(8)))
    }
    assert len(estimates.cache) == 10
    for seed, number in made:
        (again,) = redraws(estimates, seed, [number])
        assert (again is made[seed, number]) == (seed == 0 or number < 2)
        # One by one or together, and whoever asks in another order: the same to the last bit.
        np.testing.assert_array_equal(again.cells, made[seed, number].cells)
    (alone,) = redraws(fresh, 7, [3])
    np.testing.assert_array_equal(alone.cells, made[7, 3].cells)
    assert not np.array_equal(made[0, 3].cells, made[7, 3].cells)


@pytest.mark.parametrize("estimator", ["shrinkage", "plain"])
def test_a_pool_remembers_its_estimates_which_nobody_can_change(estimator: str) -> None:
    known = truth(5)
    matrix = np.rint(known.exact).astype(np.int64)
    pool = make_pool(known, matrix)
    estimates = estimate(pool, estimator)
    assert estimate(pool, estimator) is estimates
    assert estimates.estimator == estimator
    for array in (pool.matrix, estimates.cells, estimates.totals):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    matrix[0] += 0  # the caller's own array stays writeable


def test_shrinkage_chooses_better_than_the_paper_under_noise() -> None:
    # 24 draws: twelve worlds of 30 clients, two noise draws each, all 4,060 federations of three compared.
    # Over 48 such draws the mean regrets were 0.069 and 0.109, their paired difference 3.3 standard errors.
    federations = np.array(list(itertools.combinations(range(30), 3)))

    def losses(estimates: Estimates) -> np.ndarray:
        problem = Problem.of(estimates, PFL(Weights()))
        return problem.evaluate(problem.rows[federations].sum(axis=1))

    regret = {"plain": 0.0, "shrinkage": 0.0}
    for world in range(100, 112):
        known = truth(30, rows=6000, seed=world)
        sigmas = flat(known.layout.tables, 120.0)
        true = losses(known.true_estimates())
        for seed in range(2):
            matrix = known.noisy(sigmas, seed)
            shrunk = known.estimates(matrix, sigmas)
            plain = replace(shrunk, cells=matrix, estimator="plain", posterior=None)
            for made in (plain, shrunk):
                regret[made.estimator] += true[np.argmin(losses(made))] - true.min()
    assert regret["shrinkage"] < 0.85 * regret["plain"]
