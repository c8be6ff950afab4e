"""People of a forecast: from estimates and released sums together, each table by what is known of it."""

from __future__ import annotations

import numpy as np
import pytest

import fedwise as fw
from conftest import make_people
from fedwise.estimation.estimates import Estimates
from fedwise.forecasting.moments import consistent_counts
from fedwise.forecasting.people import estimated_shares, people_shares


def pool(schema: fw.Schema, epsilon: float, *, clients: int, rows: int) -> fw.Pool:
    plan = fw.plan(schema, epsilon=epsilon)
    return fw.Pool.of(
        fw.release(plan, make_people(rows, seed=i), client=f"c{i}", simulated=True, seed=50 + i)
        for i in range(clients)
    )


def shares(estimates: Estimates, members: list[int]) -> tuple[np.ndarray, np.ndarray]:
    counts, chosen = consistent_counts(estimates), np.array(members)
    return estimated_shares(estimates, counts, chosen), people_shares(estimates, counts, chosen)


def test_without_noise_people_are_the_estimates(small_schema) -> None:
    plan = fw.plan(small_schema, epsilon=float("inf"))
    exact = fw.Pool.of(
        fw.release(plan, make_people(300, seed=i), client=f"c{i}", no_privacy=True) for i in range(3)
    )
    estimated, people = shares(fw.estimate(exact), [0, 1, 2])
    np.testing.assert_array_equal(people, estimated)


def test_every_table_of_the_people_is_a_distribution(small_schema) -> None:
    estimates = fw.estimate(pool(small_schema, 0.05, clients=4, rows=100))
    _, people = shares(estimates, [1, 3])
    assert (people >= 0).all()
    for j in range(estimates.layout.tables):
        assert people[estimates.layout.slice(j)].sum() == pytest.approx(1.0)


def test_many_known_clients_give_what_they_released(small_schema) -> None:
    """An association that the estimates have lost is there in the released sums, and is taken from them."""
    estimates = fw.estimate(pool(small_schema, 5.0, clients=12, rows=800))
    layout, members = estimates.layout, np.arange(12)
    flat = np.concatenate(
        [np.outer(*(estimates.marginals[0, side] for side in layout.sides(j))).ravel() for j in range(layout.tables)]
    )  # fmt: skip
    counts = (
        np.tile(flat, (12, 1)) / estimates.totals[0],
        np.tile(estimates.marginals[0], (12, 1)),
        np.full(12, estimates.totals[0]),
    )
    truth = estimates.released.sum(axis=0)
    moved, unmoved = people_shares(estimates, counts, members), estimated_shares(estimates, counts, members)
    strongest = 0
    for j in range(layout.tables):
        here = layout.slice(j)
        right = truth[here] / truth[here].sum()
        before, after = np.abs(unmoved[here] - right).sum(), np.abs(moved[here] - right).sum()
        strongest += before > 0.1 and after < 0.2 * before
        assert after <= before + 0.02
    assert strongest


def test_a_client_whose_release_shows_nothing_keeps_its_estimates(small_schema) -> None:
    noisy = fw.estimate(pool(small_schema, 0.01, clients=8, rows=60))
    moved = []
    for client in range(8):
        estimated, people = shares(noisy, [client])
        for j in range(noisy.layout.tables):
            here = noisy.layout.slice(j)
            moved.append(np.abs(people[here] - estimated[here]).sum())
    # Taken as released, tables of nothing but noise would move by .7 in the median.
    assert np.median(moved) < 0.1
