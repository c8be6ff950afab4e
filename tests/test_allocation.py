"""Allocation: shares of one budget."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from estimation.noisy_pools import truth
from fedwise.allocation import EVEN, shares
from fedwise.errors import PlanError
from fedwise.objective.pfl import Weights, pair_weights
from fedwise.schema.layout import Layout
from fedwise.schema.schema import Column, Role, Schema

KNOWN = truth(1)


def test_uniform_is_one_over_tables() -> None:
    found = shares(KNOWN.schema, KNOWN.layout, Weights(), "uniform")
    np.testing.assert_allclose(found, 1 / KNOWN.layout.tables)


@pytest.mark.parametrize("weights", [Weights(), Weights(alpha=0), Weights(alpha=0, beta=0, gamma=0, lam=3)])
def test_weighted_shares_are_positive_sum_to_one_and_follow_the_weights(weights: Weights) -> None:
    found = shares(KNOWN.schema, KNOWN.layout, weights)
    assert (found >= EVEN / KNOWN.layout.tables - 1e-15).all()
    assert found.sum() == pytest.approx(1.0, abs=1e-12)
    order = np.abs(pair_weights(KNOWN.schema, KNOWN.layout, weights))
    assert (np.diff(found[np.argsort(order)]) >= -1e-15).all()


def test_tables_of_no_weight_share_evenly() -> None:
    schema = Schema(
        (
            Column("N", Role.FEATURE, levels=(0, 1)),
            Column("S", Role.SENSITIVE, levels=(0, 1)),
            Column("R", Role.SENSITIVE, levels=(0, 1)),
            Column("T", Role.TARGET, levels=(0, 1)),
        )
    )
    layout = Layout.of(schema, (("S", "R"),))
    np.testing.assert_array_equal(shares(schema, layout, Weights()), [1.0])
    whole = Layout.of(schema, tuple(itertools.combinations(schema.names, 2)))
    assert shares(schema, whole, Weights())[whole.pairs.index((1, 2))] == pytest.approx(EVEN / 6)


def test_the_variance_part_is_the_best_split_for_equal_tables() -> None:
    # Σ w²/q over Σ q = 1 is least at q ∝ |w|: no random split does better.
    need = np.abs(pair_weights(KNOWN.schema, KNOWN.layout, Weights()))
    best = np.sum(need**2 / (need / need.sum()))
    for q in np.random.default_rng(0).dirichlet(np.ones(len(need)), 500):
        assert np.sum(need**2 / q) >= best


def test_wrong_requests_are_refused() -> None:
    with pytest.raises(PlanError, match="did you mean 'weighted'"):
        shares(KNOWN.schema, KNOWN.layout, Weights(), "weigthed")
    with pytest.raises(PlanError, match="at least one table"):
        shares(KNOWN.schema, Layout(KNOWN.layout.names, KNOWN.layout.sizes, ()), Weights())
