"""Pools: releases of the same tables, each once, no copies, and a screen with a known false-alarm rate."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import numpy as np
import pytest
from scipy.stats import kstest

import fedwise as fw
from conftest import make_people
from fedwise.errors import PoolError, ReleaseError
from fedwise.estimation.consistency import screen
from fedwise.owner.noise import add_simulated_noise
from fedwise.owner.release import NoisyTable
from fedwise.owner.tables import Tables, count
from fedwise.pool.pool import FALSE_ALARM, flagged, release_files


def simulate(plan: fw.Plan, client: str, rows: int = 300, seed: int = 0) -> fw.Release:
    return fw.release(plan, make_people(rows, seed), client=client, simulated=True, seed=seed)


def altered(release: fw.Release, counts: np.ndarray) -> fw.Release:
    """The same release with other counts, consistent in every formal respect."""
    at = release.plan.layout.slice
    tables = tuple(
        NoisyTable(t.pair, t.shape, t.sigma, counts[at(j)].tolist()) for j, t in enumerate(release.tables)
    )
    return msgspec.structs.replace(release, tables=tables)


@pytest.fixture(scope="module")
def plan(small_schema: fw.Schema) -> fw.Plan:
    return fw.plan(small_schema)


def test_load_sorts_and_stacks(plan: fw.Plan, tmp_path: Path) -> None:
    releases = {name: simulate(plan, name, seed=i) for i, name in enumerate(["b", "c", "a"])}
    for name, release in releases.items():
        release.save(tmp_path / f"{name}.release.json")
    plan.save(tmp_path / "plan.json")
    steps: list[tuple[int, int]] = []
    pool = fw.Pool.load(tmp_path, progress=lambda done, total: steps.append((done, total)))
    assert pool.clients == ("a", "b", "c")
    assert len(pool) == 3
    assert pool.simulated
    assert pool.private
    assert pool.flags == ()
    assert steps == [(1, 3), (2, 3), (3, 3)]
    for row, name in zip(pool.matrix, pool.clients, strict=True):
        np.testing.assert_array_equal(row, releases[name].counts)
    assert pool.matrix.dtype == np.int64
    np.testing.assert_array_equal(fw.Pool.of(releases.values()).matrix, pool.matrix)
    single = fw.Pool.load(tmp_path / "a.release.json")
    assert single.clients == ("a",)
    assert fw.Pool.load([tmp_path / "c.release.json", str(tmp_path / "a.release.json")]).clients == ("a", "c")


def test_index_and_without(plan: fw.Plan) -> None:
    pool = fw.Pool.of([simulate(plan, name, seed=i) for i, name in enumerate(["CA", "NY", "TX"])])
    assert pool.index(["TX", "CA"]).tolist() == [2, 0]
    with pytest.raises(PoolError, match="did you mean 'CA'"):
        pool.index(["CAA"])
    rest = pool.without(["NY"])
    assert rest.clients == ("CA", "TX")
    np.testing.assert_array_equal(rest.matrix, pool.matrix[[0, 2]])
    assert len(rest.sources) == 2
    with pytest.raises(PoolError, match="at least one client"):
        pool.without(pool.clients)


def test_two_releases_of_one_client_name_both_files(plan: fw.Plan, tmp_path: Path) -> None:
    simulate(plan, "CA", seed=1).save(tmp_path / "first.json")
    simulate(plan, "CA", seed=2).save(tmp_path / "second.json")
    with pytest.raises(PoolError, match=r"'CA' appears twice: .*first\.json.*second\.json"):
        fw.Pool.load(tmp_path)


def test_a_copy_under_another_name(plan: fw.Plan, small_schema: fw.Schema) -> None:
    real = simulate(plan, "CA")
    with pytest.raises(PoolError, match="noisy counts of client 'CA'"):
        fw.Pool.of([real, msgspec.structs.replace(real, client="NY")])
    # Exact counts may repeat: two equal clients without privacy are no copies.
    exact = fw.plan(small_schema, math.inf)
    equal = [fw.release(exact, make_people(9), client=name, no_privacy=True) for name in ("a", "b")]
    assert len(fw.Pool.of(equal)) == 2


def test_releases_of_other_tables(plan: fw.Plan, small_schema: fw.Schema) -> None:
    other = fw.plan(small_schema, weights=fw.Weights(gamma=0.0))
    with pytest.raises(
        PoolError, match=f"{other.digest[:12]}.*{plan.digest[:12]}, which asks for other tables"
    ):
        fw.Pool.of([simulate(plan, "a"), simulate(other, "b")])
    exact = fw.plan(small_schema, math.inf)
    with pytest.raises(PoolError, match="must not mix"):
        fw.Pool.of([simulate(plan, "a"), fw.release(exact, make_people(9), client="b", no_privacy=True)])


def test_nothing_to_load(tmp_path: Path) -> None:
    with pytest.raises(PoolError, match="at least one release"):
        fw.Pool.of([])
    with pytest.raises(PoolError, match=r"hold no \*\.release\.json"):
        fw.Pool.load(tmp_path)
    with pytest.raises(PoolError, match="at least one release file"):
        fw.Pool.load([])
    with pytest.raises(PoolError, match="do not exist"):
        fw.Pool.load(tmp_path / "absent")
    with pytest.raises(ReleaseError, match="does not exist"):
        fw.Pool.load([tmp_path / "absent.json"])
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(ReleaseError, match=r"x\.json"):
        fw.Pool.load(tmp_path)
    assert release_files(tmp_path) == [tmp_path / "x.json"]


def test_in_memory_releases_are_verified_too(plan: fw.Plan) -> None:
    with pytest.raises(ReleaseError, match="states another promise"):
        fw.Pool.of([msgspec.structs.replace(simulate(plan, "a"), epsilon=0.1)])


def honest(plan: fw.Plan, clients: int, seed: int) -> np.ndarray:
    """Noisy counts of many honest clients, by the sampler of simulations."""
    rng = np.random.default_rng(seed)
    codes = plan.schema.encode(make_people(400, seed))
    tables = count(codes, plan.layout)
    return np.stack([add_simulated_noise(tables, plan.sigmas, rng) for _ in range(clients)])


@pytest.mark.parametrize(
    ("epsilon", "allocation"), [(1.0, "weighted"), (1.0, "uniform"), (5.0, "weighted"), (20.0, "weighted")]
)
def test_honest_releases_are_not_flagged(epsilon: float, allocation: str, small_schema: fw.Schema) -> None:
    """2,000 honest releases: none flagged (expected 0.002), and the p-values uniform where noise is wide."""
    plan = fw.plan(small_schema, epsilon, allocation=allocation)
    matrix = honest(plan, 2000, 3)
    assert flagged([str(i) for i in range(2000)], matrix, plan) == []
    if epsilon <= 5:
        # Kolmogorov–Smirnov with a fixed seed: rejects a wrong number of degrees of freedom at once.
        assert kstest(screen(matrix, plan.layout, plan.sigmas).p_value, "uniform").pvalue > 1e-3


def test_little_noise_is_not_flagged_for_agreeing(small_schema: fw.Schema) -> None:
    # At epsilon 100 the lattice makes most noise exactly 0: honest tables agree, and must not be accused.
    plan = fw.plan(small_schema, 100.0)
    assert plan.sigmas.min() < 0.3
    assert flagged([str(i) for i in range(500)], honest(plan, 500, 5), plan) == []


def test_a_single_table_has_nothing_to_contradict() -> None:
    text = '[columns.A]\nrole = "feature"\nlevels = [0, 1]\n[columns.T]\nrole = "target"\nlevels = [0, 1]\n'
    plan = fw.plan(fw.Schema.parse(text))
    assert len(plan.tables) == 1
    rng = np.random.default_rng(0)
    exact = Tables(plan.layout, np.array([5, 6, 7, 8], dtype=np.int64))
    matrix = np.stack([add_simulated_noise(exact, plan.sigmas, rng) for _ in range(50)])
    assert flagged([str(i) for i in range(50)], matrix, plan) == []


def doctored_cell(counts: np.ndarray, plan: fw.Plan) -> np.ndarray:
    counts = counts.copy()
    counts[3] += math.ceil(40 * plan.sigmas[0])
    return counts


def doctored_marginal(counts: np.ndarray, plan: fw.Plan) -> np.ndarray:
    # People moved from one sex to the other in one table only: its total still agrees.
    counts = counts.copy()
    j = next(j for j, table in enumerate(plan.tables) if "SEX" in table.pair)
    table = counts[plan.layout.slice(j)].reshape(plan.tables[j].shape)
    moved = math.ceil(15 * plan.sigmas[j])
    if plan.tables[j].pair[0] == "SEX":
        table = table.T
    table[:, 0] += moved
    table[:, 1] -= moved
    return counts


def other_people(counts: np.ndarray, plan: fw.Plan) -> np.ndarray:
    # One table from another data set of another size.
    counts = counts.copy()
    exact = count(plan.schema.encode(make_people(2000, 9)), plan.layout).exact
    counts[plan.layout.slice(0)] = exact[plan.layout.slice(0)]
    return counts


def no_noise_at_all(counts: np.ndarray, plan: fw.Plan) -> np.ndarray:
    return count(plan.schema.encode(make_people(300, 0)), plan.layout).exact


def scaled_up(counts: np.ndarray, plan: fw.Plan) -> np.ndarray:
    return counts * 10


DOCTORED = {
    "one cell": (doctored_cell, "contradict"),
    "moved marginal": (doctored_marginal, "contradict"),
    "table of other people": (other_people, "contradict"),
    "all counts times ten": (scaled_up, "contradict"),
    "no noise": (no_noise_at_all, "agree better"),
}


@pytest.mark.parametrize("case", DOCTORED)
def test_doctored_releases_are_flagged(case: str, plan: fw.Plan, tmp_path: Path) -> None:
    doctor, reason = DOCTORED[case]
    release = simulate(plan, "CA")
    bad = altered(release, doctor(np.array(release.counts), plan))
    good = simulate(plan, "NY", seed=1)
    bad.save(tmp_path / "CA.release.json")
    good.save(tmp_path / "NY.release.json")
    with pytest.raises(PoolError, match=rf"CA\.release\.json.*'CA' fails the consistency screen.*{reason}"):
        fw.Pool.load(tmp_path)
    pool = fw.Pool.load(tmp_path, accept_flagged=True)
    assert [flag.client for flag in pool.flags] == ["CA"]
    assert pool.flags[0].p_value is not None
    assert pool.without(["CA"]).flags == ()
    assert FALSE_ALARM == 1e-6


def test_a_pool_is_labelled_by_its_weakest_release(small_schema: fw.Schema, tmp_path: Path) -> None:
    plan = fw.plan(small_schema)
    ledger = fw.Ledger(tmp_path / "l.db", 1.0)
    charged = fw.release(plan, make_people(300, 1), client="a", ledger=ledger)
    uncharged = fw.release(plan, make_people(300, 2), client="b", uncharged=True)
    simulated = fw.release(plan, make_people(300, 3), client="c", simulated=True, seed=0)
    assert fw.Pool.of([charged]).label == "private"
    mixed = fw.Pool.of([charged, uncharged])
    assert mixed.label == "not charged"
    assert "not charged" in repr(mixed)
    assert mixed.without(["a"]).label == "not charged"
    assert any(flag.startswith("not charged") for flag in fw.select(mixed, 1).flags)
    assert fw.Pool.of([charged, uncharged, simulated]).label == "simulated"
