"""Variation: tables of features among themselves that differ between clients as much as the clients do."""

from __future__ import annotations

import numpy as np

from estimation.noisy_pools import Truth, truth
from fedwise.estimation.estimates import Estimates
from fedwise.estimation.fitting import fit
from fedwise.estimation.variation import varied


def _features(made: Truth) -> list[int]:
    apart = {made.schema.target, *made.schema.sensitive}
    return [j for j, pair in enumerate(made.layout.pairs) if not apart & {*pair}]


def _spread(made: Truth, estimates: Estimates) -> float:
    """How far clients' tables of features lie from the true pool's odds at their own margins: squares over shares."""
    exact, found = made.exact.sum(axis=0), 0.0
    for j in _features(made):
        here, (a, b) = made.layout.slice(j), made.layout.shapes[j]
        tables = estimates.cells[:, here].reshape(-1, a, b)
        tables = tables / tables.sum(axis=(1, 2), keepdims=True)
        pool = exact[here].reshape(a, b) / exact[here].sum()
        alike = fit(np.broadcast_to(pool, tables.shape).copy(), tables.sum(axis=2), tables.sum(axis=1))
        found += float(((tables - alike) ** 2 / np.maximum(alike, 1e-5)).sum())
    return found


def test_without_noise_nothing_changes() -> None:
    estimates = truth().true_estimates()
    assert varied(estimates) is estimates


def test_clients_differ_as_much_as_they_do_where_noise_hides_it() -> None:
    made = truth(24, rows=6000, sizes=(5, 4, 5))
    sigmas = np.full(made.layout.tables, 25.0)
    true, shrunk, lengthened = [], [], []
    for seed in range(8):
        estimates = made.estimates(made.noisy(sigmas, seed), sigmas)
        true.append(_spread(made, made.true_estimates()))
        shrunk.append(_spread(made, estimates))
        lengthened.append(_spread(made, varied(estimates)))
    # Estimates drawn towards the pool hold a part of the clients' spread; the rest is uncertain, not absent.
    assert np.mean(shrunk) < 0.75 * np.mean(true)
    assert np.mean(shrunk) + 0.05 * np.mean(true) < np.mean(lengthened) < 1.1 * np.mean(true)


def test_margins_and_tables_with_groups_or_classes_stay() -> None:
    made = truth(10)
    sigmas = np.full(made.layout.tables, 20.0)
    estimates = made.estimates(made.noisy(sigmas, 1), sigmas)
    found = varied(estimates)
    features, changed = _features(made), 0
    for j in range(made.layout.tables):
        here, (a, b) = made.layout.slice(j), made.layout.shapes[j]
        if j not in features:
            np.testing.assert_array_equal(found.cells[:, here], estimates.cells[:, here])
            continue
        before, after = (one.cells[:, here].reshape(-1, a, b) for one in (estimates, found))
        assert (after >= 0).all()
        changed += not np.array_equal(before, after)
        for axis in (1, 2):
            np.testing.assert_allclose(after.sum(axis=axis), before.sum(axis=axis), rtol=1e-4, atol=0.5)
    # Where clients do not differ beyond the noise nothing is known of a direction to lengthen.
    assert changed >= 1
