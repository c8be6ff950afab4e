"""The batched terms equal the slow reference, client by client and federation by federation."""

from __future__ import annotations

import numpy as np
import pytest

import fedwise as fw
from fedwise.estimation import estimate
from fedwise.objective.pfl import TERM_NAMES, Weights, loss, terms
from fedwise.view import terms as batched


@pytest.mark.parametrize("estimator", ["shrinkage", "plain"])
def test_client_terms_equal_the_reference(pool: fw.Pool, estimator: str) -> None:
    estimates = estimate(pool, estimator)
    found = batched.client_terms(estimates)
    for i in range(len(pool)):
        wanted = terms(estimates, [i])
        assert found[i] == pytest.approx([getattr(wanted, name) for name in TERM_NAMES], rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("estimator", ["shrinkage", "plain"])
def test_federation_terms_equal_the_reference(pool: fw.Pool, estimator: str) -> None:
    estimates = estimate(pool, estimator)
    rng = np.random.default_rng(0)
    members = np.stack([rng.choice(len(pool), size=4, replace=False) for _ in range(20)])
    found = batched.federation_terms(estimates, members)
    weights = Weights(alpha=1.5, beta=0.2, gamma=0.3, lam=2.0)
    for row, federation in zip(found, members, strict=True):
        assert float(row @ batched.signs(weights)) == pytest.approx(
            loss(estimates, federation, weights), rel=1e-12
        )


def test_blocks_do_not_change_the_answer(pool: fw.Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    estimates = estimate(pool)
    whole = batched.client_terms(estimates)
    monkeypatch.setattr(batched, "_BLOCK", 1)
    assert np.array_equal(batched.client_terms(estimates), whole)


def test_a_client_without_records_has_no_information(pool: fw.Pool) -> None:
    from dataclasses import replace

    estimates = estimate(pool, "plain")
    empty = replace(estimates, cells=-np.ones_like(estimates.cells), totals=np.zeros(len(pool)))
    assert np.array_equal(batched.client_terms(empty), np.zeros((len(pool), 4)))
