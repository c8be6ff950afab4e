"""Mixed pools: a noise scale for each client and table, and several releases of one client as one."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

import fedwise as fw
from conftest import make_people
from estimation.noisy_pools import truth
from fedwise.bounds import noise_covariance
from fedwise.errors import PoolError
from fedwise.estimation.consistency import consistent, variances
from fedwise.estimation.estimates import Estimates
from fedwise.estimation.redraw import redraw
from fedwise.estimation.uncertainty import standard_error
from fedwise.objective.pfl import loss
from fedwise.pool.attenuation import Shares, _relative_precision, compare_table
from fedwise.privacy.scales import gaussian_epsilon


def simulate(plan: fw.Plan, client: str, seed: int = 0, rows: int = 3000) -> fw.Release:
    return fw.release(plan, make_people(rows, len(client)), client=client, simulated=True, seed=seed)


@pytest.fixture(scope="module")
def plans(small_schema: fw.Schema) -> dict[float, fw.Plan]:
    return {epsilon: fw.plan(small_schema, epsilon) for epsilon in (0.1, 0.5, 2.0)}


def test_releases_of_different_epsilon_form_one_pool(plans: dict[float, fw.Plan]) -> None:
    pool = fw.Pool.of([simulate(plan, f"c{i}", seed=i) for i, plan in enumerate(plans.values())])
    assert pool.mixed
    np.testing.assert_array_equal(pool.sigmas, [plan.sigmas for plan in plans.values()])
    assert pool.epsilons.tolist() == [0.1, 0.5, 2.0]
    assert "epsilon=0.1 to 2" in repr(pool)
    estimates = fw.estimate(pool)
    np.testing.assert_array_equal(estimates.sigmas, pool.sigmas)
    rest = pool.without(["c1"])
    np.testing.assert_array_equal(rest.sigmas, pool.sigmas[[0, 2]])
    assert rest.epsilons.tolist() == [0.1, 2.0]


def test_clients_differ_only_by_their_own_scales() -> None:
    known = truth(6)
    low, high = np.full(known.layout.tables, 3.0), np.linspace(20.0, 60.0, known.layout.tables)
    mixed = np.stack([low, high, low, high, low, low])
    matrix = known.noisy(mixed, 0)
    for scales, rows in ((low, [0, 2, 4, 5]), (high, [1, 3])):
        alone, together = consistent(matrix, known.layout, scales), consistent(matrix, known.layout, mixed)
        for one, all_ in zip(alone[:3], together[:3], strict=True):
            np.testing.assert_allclose(all_[rows], one[rows], rtol=1e-12, atol=1e-9)
        np.testing.assert_allclose(together[3].p_value[rows], alone[3].p_value[rows], rtol=1e-9)
        np.testing.assert_allclose(
            variances(known.layout, mixed).effects[rows],
            [variances(known.layout, scales).effects] * len(rows),
        )


def test_a_precise_client_is_kept_and_a_noisy_one_is_shrunk() -> None:
    known = truth(24, rows=3000)
    scales = np.full((24, known.layout.tables), 2.0)
    scales[::2] = 60.0
    found = known.estimates(known.noisy(scales, 1), scales)
    exact = known.exact / known.true_estimates().totals[:, None]
    error = np.abs(found.cells / found.totals[:, None] - exact).mean(axis=1)
    everyone = known.estimates(known.noisy(np.full_like(scales, 60.0), 1), np.full_like(scales, 60.0))
    worse = np.abs(everyone.cells / everyone.totals[:, None] - exact).mean(axis=1)
    assert error[1::2].max() < 0.5 * error[::2].mean()
    assert error[::2].mean() < worse[::2].mean()  # precise clients help the others
    assert np.all(found.posterior.totals[::2] > 100 * found.posterior.totals[1::2])  # type: ignore[union-attr]


def test_errors_cover_what_redraws_of_mixed_noise_do() -> None:
    known = truth(12, rows=20_000)
    scales = np.repeat([[2.0], [8.0], [30.0]], 4, axis=0) * np.ones(known.layout.tables)
    members = [0, 4, 8]
    plain = Estimates.plain(tuple("abcdefghijkl"), known.schema, known.layout, known.noisy(scales, 0), scales)
    rng = np.random.default_rng(0)
    seen = np.std([loss(redraw(plain, rng), members, fw.Weights()) for _ in range(300)])
    assert standard_error(plain, members, fw.Weights()) == pytest.approx(seen, rel=0.2)
    both = noise_covariance(plain, np.array([[0, 4, 8], [1, 5, 9]]), fw.Weights())
    assert both[0, 1] == 0.0  # no common client, no common noise
    assert both[0, 0] > 0.0


def test_releases_of_one_client_combine_by_precision(plans: dict[float, fw.Plan]) -> None:
    first, second = simulate(plans[0.5], "c", seed=1), simulate(plans[2.0], "c", seed=2)
    pool = fw.Pool.of([first, second])
    assert pool.clients == ("c",)
    weight = first.sigmas**-2.0 / (first.sigmas**-2.0 + second.sigmas**-2.0)
    cells = pool.plan.layout.per_cell(weight)
    np.testing.assert_allclose(pool.matrix[0], cells * first.counts + (1 - cells) * second.counts)
    np.testing.assert_allclose(pool.sigmas[0] ** -2.0, first.sigmas**-2.0 + second.sigmas**-2.0)
    together = gaussian_epsilon(np.hypot(plans[0.5].mu, plans[2.0].mu), 1e-5)
    assert pool.epsilons[0] == pytest.approx(together)
    assert 2.0 < together < 2.5


def test_releases_of_one_client_must_fit_one_another(plans: dict[float, fw.Plan]) -> None:
    first = simulate(plans[0.5], "c", seed=1)
    other = fw.release(plans[2.0], make_people(9000, 5), client="c", simulated=True, seed=2)
    with pytest.raises(PoolError, match="contradict one another beyond their noise"):
        fw.Pool.of([first, other])
    kept = fw.Pool.of([first, other], accept_flagged=True)
    assert [flag.client for flag in kept.flags] == ["c"]
    # The counts of the first release again, under the other plan: not independent noise.
    tables = tuple(
        msgspec.structs.replace(t, counts=f.counts) for t, f in zip(other.tables, first.tables, strict=True)
    )
    with pytest.raises(PoolError, match="holds exactly the noisy counts of client 'c'"):
        fw.Pool.of([first, msgspec.structs.replace(other, tables=tables)])
    nearly = tuple(msgspec.structs.replace(t, counts=[c + 1 for c in t.counts]) for t in tables)
    with pytest.raises(PoolError, match="agree better than independent noise allows"):
        fw.Pool.of([first, msgspec.structs.replace(other, tables=nearly)])


def test_noisy_clients_do_not_drown_what_precise_ones_say_of_the_odds() -> None:
    """What a client is compared with comes from the precise ones; with one noise for all nothing changes."""
    known = truth(12)
    low, high = np.full(known.layout.tables, 3.0), np.full(known.layout.tables, 200.0)
    mixed = np.where(np.arange(12)[:, None] < 5, low, high)
    inside = np.ones(12, dtype=bool)
    exact = Shares.of(known.noisy(np.zeros_like(mixed), 0), known.layout, np.zeros_like(mixed))
    shares = Shares.of(known.noisy(mixed, 0), known.layout, mixed)
    alike = Shares.of(known.noisy(high, 0), known.layout, np.tile(high, (12, 1)))
    errors = []
    for table in range(known.layout.tables):
        true, found, noisy = (compare_table(s, table, inside).expected[:5] for s in (exact, shares, alike))
        errors.append([np.sum((found - true) ** 2), np.sum((noisy - true) ** 2)])
        assert (_relative_precision(alike, table) == 1).all()
        weight = _relative_precision(shares, table)
        assert (weight[:5] == 1).all()
        assert (weight[5:] < 0.5).all()
    together = np.sum(errors, axis=0)
    assert together[0] < together[1] / 3
