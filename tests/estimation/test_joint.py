"""Joint tables: pairs of groups and classes from all of them, and what pairs leave open, as closed forms say."""

from __future__ import annotations

import math

import numpy as np
import pytest

import fedwise as fw
from fedwise.estimation.joint import BeyondPairs, JointEstimates, JointTables
from fedwise.schema.joint import Folding

CLIENTS = 40


def folding(groups: int = 2, *, second: bool = False) -> Folding:
    columns = [
        fw.Column("x", fw.Role.FEATURE, levels=(0, 1, 2)),
        fw.Column("z", fw.Role.FEATURE, levels=(0, 1)),
        fw.Column("s", fw.Role.SENSITIVE, levels=tuple(range(groups))),
        *([fw.Column("r", fw.Role.SENSITIVE, levels=(0, 1))] if second else []),
        fw.Column("y", fw.Role.TARGET, levels=(0, 1)),
    ]
    found = fw.plan(fw.Schema(name="joint", columns=tuple(columns)), 1.0, joint=True).folding
    assert found is not None
    return found


def world(rng: np.random.Generator, total: int = 8_000, clients: int = CLIENTS) -> np.ndarray:
    """Exact counts of clients whose interaction of three varies by client: shape (clients, 3, 2, 2, 2) of x z s y."""
    found = []
    for _ in range(clients):
        x = rng.choice(3, total, p=[0.5, 0.3, 0.2])
        s, z = rng.integers(0, 2, total), rng.integers(0, 2, total)
        turn = np.array([-0.6, 0.2, 0.5]) + rng.normal(0, 0.25, 3)
        logit = -0.3 + 0.4 * z + 0.3 * s + np.array([0.0, 0.5, -0.4])[x] + turn[x] * np.where(s == 1, 1, -1)
        y = (rng.random(total) < 1 / (1 + np.exp(-logit))).astype(int)
        table = np.zeros((3, 2, 2, 2))
        np.add.at(table, (x, z, s, y), 1)
        found.append(table)
    return np.stack(found)


def counts_of(fold: Folding, tables: np.ndarray) -> np.ndarray:
    """Counts of the tables asked."""
    names = {name: i for i, name in enumerate(fold.plain.names)}
    out = []
    for a, b in fold.asked.pairs:
        axes = [names[fold.plain.names[v]] for v in ((a, *fold.groups) if b == fold.joint else (a, b))]
        gone = tuple(1 + axis for axis in range(4) if axis not in axes)
        out.append(tables.sum(axis=gone).reshape(len(tables), -1))
    return np.concatenate(out, axis=1)


def noisy(fold: Folding, exact: np.ndarray, sigma: float, rng: np.random.Generator) -> JointTables:
    sigmas = np.full((len(exact), fold.asked.tables), sigma)
    return JointTables(fold, exact + rng.normal(0, 1, exact.shape) * sigma, sigmas)


def test_a_pair_of_group_and_class_is_the_mean_by_precision_of_all_tables_that_hold_it() -> None:
    fold = folding()
    rng = np.random.default_rng(0)
    released = noisy(fold, counts_of(fold, world(rng, clients=3)), 9.0, rng)
    counts, scales = released.pairs
    place = fold.layout.pairs.index((2, 3))
    own = released.counts[:, fold.asked.slice(fold.asked.pairs.index((2, 3)))]
    top, precision = own / 81.0, 1 / 81.0
    for feature, levels in ((0, 3), (1, 2)):
        table = released.counts[:, fold.asked.slice(fold.features[feature])].reshape(3, levels, 4)
        top, precision = top + table.sum(axis=1) / (81.0 * levels), precision + 1 / (81.0 * levels)
    np.testing.assert_allclose(counts[:, fold.layout.slice(place)], top / precision)
    np.testing.assert_allclose(scales[:, place], precision**-0.5)
    assert scales[0, place] < 0.75 * 9.0
    others = [j for j in range(fold.layout.tables) if j != place]
    plain = fold.cells(released.counts)
    for j in others:
        np.testing.assert_array_equal(counts[:, fold.layout.slice(j)], plain[:, fold.layout.slice(j)])
    np.testing.assert_array_equal(scales[:, others], fold.scales(released.sigmas)[:, others])


def test_its_noise_is_as_stated_and_a_client_without_noise_keeps_its_counts() -> None:
    fold = folding()
    rng = np.random.default_rng(1)
    exact = counts_of(fold, world(rng, clients=1))
    many = noisy(fold, np.repeat(exact, 4_000, axis=0), 5.0, rng)
    counts, scales = many.pairs
    here = fold.layout.slice(fold.layout.pairs.index((2, 3)))
    spread = (counts[:, here] - fold.cells(exact)[:, here]).std()
    assert spread == pytest.approx(scales[0, fold.layout.pairs.index((2, 3))], rel=0.03)
    still = JointTables(fold, exact, np.zeros((1, fold.asked.tables)))
    np.testing.assert_array_equal(still.pairs[0], fold.cells(exact))
    assert not still.pairs[1].any()


@pytest.mark.parametrize(("groups", "second", "size"), [(2, False, 1), (3, False, 2), (2, True, 4)])
def test_what_pairs_leave_open_changes_no_pair(groups: int, second: bool, size: int) -> None:
    fold = folding(groups, second=second)
    basis = BeyondPairs.of(fold).basis
    assert basis.shape == (fold.levels.shape[1], size)
    np.testing.assert_allclose(basis.T @ basis, np.eye(size), atol=1e-12)
    for level in fold.levels:
        np.testing.assert_allclose(np.eye(level.max() + 1)[level].T @ basis, 0, atol=1e-12)


def test_two_by_two_has_the_textbook_weight() -> None:
    opened = BeyondPairs.of(folding())
    m = np.array([[90.0, 40.0, 60.0, 10.0], [500.0, 300.0, 200.0, 400.0]])
    sign = np.array([1, -1, -1, 1]) / 2
    off = np.array([8.0, -30.0])
    margin = np.array([3.0, 3.0, -3.0, -3.0])  # of a pair: it must not count
    found = opened.shrunk(m + off[:, None] * sign + margin, m, 25.0, 1.5)
    unit = 4 / (1 / m).sum(axis=1)
    keep = 1.5 * unit / (1.5 * unit + 25.0)
    np.testing.assert_allclose(found, m + (keep * off)[:, None] * sign)
    np.testing.assert_array_equal(opened.shrunk(m + 1, m, 0.0, 1.5), m + 1)
    np.testing.assert_array_equal(opened.shrunk(m + 1, m, 25.0, 0.0), m)


@pytest.mark.parametrize("spread", [0.5, 2.0])
def test_the_spread_is_found_beside_noise_and_samples_have_one(spread: float) -> None:
    opened = BeyondPairs.of(folding())
    rng = np.random.default_rng(2)
    m = [rng.uniform(50, 600, (6, 4)) for _ in range(400)]
    sign = np.array([1, -1, -1, 1]) / 2
    counts = [
        one + (rng.normal(0, 1, 6) * np.sqrt(spread * 4 / (1 / one).sum(axis=1)))[:, None] * sign
        + rng.normal(0, 12, one.shape)
        for one in m
    ]  # fmt: skip
    assert opened.spread(counts, m, np.full(400, 144.0)) == pytest.approx(spread, rel=0.15)
    noise = [one + rng.normal(0, 12, one.shape) for one in m]
    assert opened.spread(noise, m, np.full(400, 144.0)) < 0.1


def test_estimates_are_nearer_than_the_release_and_than_the_pool() -> None:
    """Looked for among all cells, most of which the pairs have fitted, τ² is too small: clients then get the pool's."""
    fold = folding()
    rng = np.random.default_rng(3)
    exact = counts_of(fold, world(rng))
    released = noisy(fold, exact, 12.0, rng)
    totals = exact[:, fold.asked.slice(0)].sum(axis=1)
    found = JointEstimates(released, np.asarray(fold.cells(exact), float), totals)
    sign = np.array([1, -1, -1, 1])
    table = fold.features[0]
    errors = {"estimate": 0.0, "released": 0.0, "pool": 0.0}
    for client, total in enumerate(totals):
        pairs = fold.cells(exact)[client] / total
        true = exact[client, fold.asked.slice(table)].reshape(3, 4) @ sign
        estimated = {
            "estimate": found.shares(0, pairs, client) * total,
            "released": released.counts[client, fold.asked.slice(table)].reshape(3, 4),
            "pool": found.shares(0, pairs, None) * total,
        }
        for name, made in estimated.items():
            errors[name] += float(((made @ sign - true) ** 2).sum())
    assert errors["estimate"] < 0.9 * errors["released"]
    assert errors["estimate"] < 0.5 * errors["pool"]


def test_exact_tables_come_back() -> None:
    fold = folding()
    exact = counts_of(fold, world(np.random.default_rng(4), clients=3))
    totals = exact[:, fold.asked.slice(0)].sum(axis=1)
    released = JointTables(fold, exact, np.zeros((3, fold.asked.tables)))
    found = JointEstimates(released, np.asarray(fold.cells(exact), float), totals)
    for client, total in enumerate(totals):
        wanted = exact[client, fold.asked.slice(fold.features[0])].reshape(3, 4) / total
        np.testing.assert_allclose(
            found.shares(0, fold.cells(exact)[client] / total, client), wanted, atol=1e-6
        )
    assert math.isfinite(found.shares(1, fold.cells(exact)[0] / totals[0], None).sum())
