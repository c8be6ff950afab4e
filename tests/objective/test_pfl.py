"""Terms of many federations equal those summed here table by table; clipping is the objective's choice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedwise.estimation.estimates import Estimates
from fedwise.objective import pfl
from fedwise.objective.information import information
from fedwise.objective.pfl import TERM_NAMES, Terms, Weights, client_terms, federation_terms, loss, terms
from fedwise.objective.weights import term_of
from fedwise.search.problem import PFL, Problem
from search.pools import random_estimates


@pytest.fixture(params=["shrinkage", "plain"])
def estimates(request: pytest.FixtureRequest) -> Estimates:
    return random_estimates(8, seed=4, sigma=3.0, sensitive=(2, 3), plain=request.param == "plain")


def by_table(estimates: Estimates, members: list[int]) -> list[float]:
    """The four terms, one table after another."""
    layout, sums = estimates.layout, dict.fromkeys(TERM_NAMES, 0.0)
    cells, marginals = estimates.cells[members].sum(axis=0), estimates.marginals[members].sum(axis=0)
    for j, (x, y) in enumerate(layout.pairs):
        term = term_of(estimates.schema, x, y)
        if term is None:
            continue
        table = cells[layout.slice(j)].reshape(layout.shapes[j])
        if estimates.estimator == "plain":
            sums[term] += information(table)
        else:
            rows, columns = layout.sides(j)
            n = float(estimates.totals[members].sum())
            sums[term] += information(table, marginals[rows], marginals[columns], n)
    return list(sums.values())


def test_client_terms_are_those_of_each_client_alone(estimates: Estimates) -> None:
    found = client_terms(estimates)
    for i in range(len(estimates.clients)):
        assert found[i] == pytest.approx(by_table(estimates, [i]), rel=1e-12, abs=1e-12)


def test_federation_terms_are_those_of_each_federation(estimates: Estimates) -> None:
    rng = np.random.default_rng(0)
    members = np.stack([rng.choice(len(estimates.clients), size=4, replace=False) for _ in range(20)])
    weights = Weights(alpha=1.5, beta=0.2, gamma=0.3, lam=2.0)
    for row, federation in zip(federation_terms(estimates, members), members, strict=True):
        wanted = by_table(estimates, federation.tolist())
        assert row == pytest.approx(wanted, rel=1e-12, abs=1e-12)
        assert terms(estimates, federation) == Terms.of(row)
        assert loss(estimates, federation, weights) == pytest.approx(
            1.5 * wanted[0] + 0.2 * wanted[1] + 0.3 * wanted[2] - 2.0 * wanted[3], rel=1e-12
        )


def test_blocks_do_not_change_the_answer(estimates: Estimates, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = client_terms(estimates)
    monkeypatch.setattr(pfl, "_BLOCK", 1)
    assert np.array_equal(client_terms(estimates), whole)


def test_nobody_has_no_information() -> None:
    estimates = random_estimates(3, plain=True)
    empty = replace(estimates, cells=-np.ones_like(estimates.cells), totals=np.zeros(3))
    assert np.array_equal(client_terms(empty), np.zeros((3, 4)))
    assert federation_terms(estimates, np.zeros((0, 2), np.int64)).shape == (0, 4)
    assert terms(estimates, []) == Terms(0.0, 0.0, 0.0, 0.0)


def test_clipping_is_a_property_of_the_objective(estimates: Estimates) -> None:
    """Whatever the estimator, each kind of loss can be asked for, and kernel and reference agree on it."""
    weights, members = Weights(), [0, 2, 5]
    found = {clip: loss(estimates, members, weights, clip=clip) for clip in (False, True, None)}
    assert found[None] == found[estimates.estimator == "plain"]
    assert abs(found[True] - found[False]) > 1e-6
    for clip, wanted in found.items():
        problem = Problem.of(estimates, PFL(weights, clip=clip))
        assert problem.loss(members) == pytest.approx(wanted, rel=1e-9)
