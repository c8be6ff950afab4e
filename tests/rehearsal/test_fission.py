"""Fission: two releases from one, with noises that are independent and of the stated size."""

from __future__ import annotations

import numpy as np
import pytest

import fedwise as fw
from conftest import make_people
from fedwise.estimation import fission as module
from fedwise.rehearsal.fission import fission


@pytest.fixture(scope="module")
def pool(small_schema) -> fw.Pool:
    plan = fw.plan(small_schema, epsilon=1.0)
    return fw.Pool.of(
        fw.release(plan, make_people(800, seed=i), client=f"c{i}", simulated=True, seed=i) for i in range(4)
    )


def test_the_two_noises_are_independent_and_scaled(pool, monkeypatch) -> None:
    """Over the privacy noise and the split: correlation 0, variances 2; a plain copy fails."""
    seen: list[np.ndarray] = []
    monkeypatch.setattr(
        module, "estimated_again", lambda whole, matrices, sigmas: seen.extend(matrices) or (None, None)
    )
    sigmas = pool.plan.layout.per_cell(pool.plan.sigmas)
    rng = np.random.default_rng(5)
    first, second = [], []
    for _ in range(60):
        noise = rng.standard_normal(pool.matrix.shape) * sigmas
        noisy = fw.Pool(
            pool.clients, pool.plan, np.rint(pool.matrix + noise).astype(np.int64), simulated=True
        )
        seen.clear()
        fission(noisy, rng)
        first.append((seen[0] - pool.matrix) / sigmas)
        second.append((seen[1] - pool.matrix) / sigmas)
    a, b = np.concatenate([x.ravel() for x in first]), np.concatenate([x.ravel() for x in second])
    # 60 · 4 · 58 values: standard errors .0085 of the correlation, 1.2% of a variance; four of them.
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.034
    assert a.var() == pytest.approx(2.0, rel=0.05)
    assert b.var() == pytest.approx(2.0, rel=0.05)
    assert np.corrcoef(a, a)[0, 1] > 0.9


def test_estimates_know_their_noise(pool) -> None:
    train, judge = fission(pool, np.random.default_rng(0))
    np.testing.assert_allclose(train.sigmas, pool.sigmas * np.sqrt(2.0))
    np.testing.assert_allclose(judge.sigmas, pool.sigmas * np.sqrt(2.0))
    assert train.clients == judge.clients == pool.clients


def test_exact_tables_are_not_split(small_schema) -> None:
    plan = fw.plan(small_schema, epsilon=float("inf"))
    pool = fw.Pool.of([fw.release(plan, make_people(300), client="X", no_privacy=True)])
    train, judge = fission(pool, np.random.default_rng(0))
    assert train is judge is fw.estimate(pool)
