"""On census records: exact without noise, an honest error bar with it."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import fedwise as fw
from fedwise.data import acs
from fedwise.estimation import estimate
from fedwise.estimation.uncertainty import standard_error
from fedwise.objective.pfl import Weights, loss, pair_weights
from fedwise.owner.tables import count
from fedwise.pool.pool import Pool

INCOME = Path(__file__).parents[2].parent / "shared" / "data" / "acs2018_income.parquet"
pytestmark = [
    pytest.mark.acs,
    pytest.mark.skipif(not INCOME.exists(), reason="needs the census records in ../shared/data"),
]


@pytest.fixture(scope="module")
def census() -> tuple[fw.Schema, tuple[np.ndarray, ...], np.ndarray]:
    loaded = acs.read("income", INCOME, features="paper")
    codes = tuple(loaded.schema.encode(rows) for rows in loaded.clients.values())
    layout = fw.plan(loaded.schema, epsilon=math.inf).layout
    return loaded.schema, codes, np.stack([count(c, layout).exact for c in codes])


def pool_of(schema: fw.Schema, matrix: np.ndarray, epsilon: float) -> Pool:
    plan = fw.plan(schema, epsilon=epsilon)
    return Pool([f"c{i:02d}" for i in range(len(matrix))], plan, matrix, simulated=True)


@pytest.mark.parametrize("estimator", ["shrinkage", "plain"])
def test_without_noise_the_loss_is_that_of_the_raw_rows(census, estimator: str) -> None:
    schema, codes, exact = census
    pool = pool_of(schema, exact, math.inf)
    members = [0, 7, 11, 30, 49]
    rows = np.concatenate([codes[i] for i in members], axis=1)
    direct = 0.0
    for (x, y), weight in zip(
        pool.plan.layout.pairs, pair_weights(schema, pool.plan.layout, Weights()), strict=True
    ):
        direct += weight * (_entropy(rows[[x]]) + _entropy(rows[[y]]) - _entropy(rows[[x, y]]))
    assert loss(estimate(pool, estimator), members, Weights()) == pytest.approx(direct, abs=1e-9)


def _entropy(rows: np.ndarray) -> float:
    code = rows[0].astype(np.int64)
    for more in rows[1:]:
        code = code * 1000 + more
    p = np.unique(code, return_counts=True)[1] / rows.shape[1]
    return float(-(p * np.log2(p)).sum())


@pytest.mark.parametrize("epsilon", [0.3, 1.0])
def test_the_error_bar_covers_the_true_loss_of_fixed_federations(census, epsilon: float) -> None:
    # Eight draws, six federations that share them. At a true coverage of 95%, fewer than 80% inside has a
    # chance of about 1e-4 if federations err independently and of 6% if they err as one; the seeds are fixed.
    schema, _, exact = census
    truth = estimate(pool_of(schema, exact, math.inf))
    pick = np.random.default_rng(3)
    federations = [pick.choice(len(exact), k, replace=False) for k in (5, 5, 10, 10, 15, 15)]
    inside = []
    for seed in range(8):
        pool = pool_of(schema, exact, epsilon)
        noise = np.random.default_rng(seed).standard_normal(exact.shape)
        noisy = np.rint(exact + noise * pool.plan.layout.per_cell(pool.plan.sigmas)).astype(np.int64)
        estimates = estimate(pool_of(schema, noisy, epsilon))
        for members in federations:
            error = abs(loss(estimates, members, Weights()) - loss(truth, members, Weights()))
            inside.append(error <= 1.96 * standard_error(estimates, members, Weights()))
    assert np.mean(inside) >= 0.8
