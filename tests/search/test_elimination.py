"""Shortlists: who is asked again, with what chance of leaving a member of the best out."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

import fedwise as fw
from conftest import make_people
from fedwise.errors import FedwiseError, PoolError
from fedwise.estimation.possible import learned, possible
from fedwise.search.client_errors import known_share
from fedwise.search.constraints import Constraints
from fedwise.search.elimination import Standings, doubted
from fedwise.search.waves import eliminate

CLIENTS = tuple("abcdefghij")


def people(client: str) -> object:
    """Clients that differ in how much their jobs tell of income."""
    frame = make_people(2500, ord(client))
    share = (ord(client) - ord("a")) / 12
    rows = np.random.default_rng(ord(client)).random(len(frame)) < share
    income = frame["INCOME"].to_numpy().copy()
    income[rows] = np.random.default_rng(1).permutation(income)[rows]
    return frame.with_columns(INCOME=income)


@pytest.fixture(scope="module")
def plan(small_schema: fw.Schema) -> fw.Plan:
    return fw.plan(small_schema, stages=[0.3, 3.0], epsilon=3.0)


@pytest.fixture(scope="module")
def releases(plan: fw.Plan) -> dict[int, list[fw.Release]]:
    frames = {name: people(name) for name in CLIENTS}
    return {
        stage: [
            fw.release(plan, frame, client=name, simulated=True, seed=3, stage=stage)  # type: ignore[arg-type]
            for name, frame in frames.items()
        ]
        for stage in (1, 2)
    }


def test_shortlist_leaves_clear_losers_out(
    plan: fw.Plan, releases: dict[int, list[fw.Release]], tmp_path: Path
) -> None:
    pool = fw.Pool.of(releases[1])
    found = fw.shortlist(pool, 3, seed=0)
    assert (found.stage, found.epsilon, found.plan_digest) == (2, 3.0, plan.digest)
    assert 3 <= len(found.clients) < 10
    assert set(found.clients) | set(found.out) == set(CLIENTS)
    assert found.regret_after is not None
    assert found.regret_after <= found.regret + 0.01
    assert not found.bounded
    assert "chance of at most 5%" in str(found)
    best = fw.select(pool, 3)
    assert set(best.clients) <= set(found.clients)
    found.save(tmp_path / "shortlist.json")
    assert fw.Shortlist.load(tmp_path / "shortlist.json") == found
    assert fw.shortlist(pool, 3, seed=0) == found
    reasons = {one.client: one.reason for one in found.standings}
    assert all("of redraws" in reason for reason in reasons.values())
    both = fw.Pool.of([*releases[1], *(r for r in releases[2] if r.client in found.clients)])
    assert sorted(set(both.epsilons.tolist())) == [0.3, 3.0]
    with pytest.raises(
        PoolError, match="must have a stage left to ask, got releases of stage 2, the last one"
    ):
        fw.shortlist(both, 3)


def test_size_and_constraints(releases: dict[int, list[fw.Release]]) -> None:
    pool = fw.Pool.of(releases[1])
    found = fw.shortlist(
        pool, "2:3", size=4, redraws=10, constraints=fw.Constraints(include=("j",), exclude=("a",))
    )
    assert len(found.clients) == 4
    assert "j" in found.clients
    reasons = {one.client: one.reason for one in found.standings}
    assert (reasons["j"], reasons["a"]) == ("must be included", "excluded by the constraints")
    assert found.bounded
    assert "bounded" in found.statement
    assert found.sizes == (2, 3)


def test_own_epsilon_is_not_asked_beyond_it(plan: fw.Plan, releases: dict[int, list[fw.Release]]) -> None:
    own = fw.release(plan, people("c"), client="c", simulated=True, seed=3, epsilon=0.2)  # type: ignore[arg-type]
    pool = fw.Pool.of([own, *(r for r in releases[1] if r.client != "c")])
    assert pool.plan.digest == plan.digest
    found = fw.shortlist(pool, 3, redraws=10)
    assert "c" not in found.clients
    assert {one.client: one.reason for one in found.standings}[
        "c"
    ] == "its owner allows no more than epsilon 0.2"


def test_elimination_keeps_the_stated_part() -> None:
    chances = np.array([1.0, 0.9, 0.4, 0.3, 0.05, 0.03, 0.02])
    everyone = np.ones(7, dtype=bool)
    assert eliminate(chances, everyone, allowed=0.1).tolist() == [True] * 4 + [False] * 3
    assert eliminate(chances, everyone, allowed=0.04).tolist() == [True] * 6 + [False]
    assert eliminate(chances, everyone, allowed=9.0, least=2).tolist() == [True] * 2 + [False] * 5
    assert eliminate(chances, everyone, allowed=0.1, most=3).sum() == 3
    assert eliminate(chances, everyone, allowed=0.1, size=6).sum() == 6
    able = everyone.copy()
    able[0] = False
    assert eliminate(chances, able, allowed=0.1).tolist() == [False, True, True, True, False, False, False]


def test_draws_of_the_truth_have_the_spread_of_the_posterior(releases: dict[int, list[fw.Release]]) -> None:
    estimates = fw.estimate(fw.Pool.of(releases[1]))
    assert estimates.posterior is not None
    drawn = [possible(estimates, np.random.default_rng(i)) for i in range(200)]
    totals = np.std([d.totals for d in drawn], axis=0)
    # Student's t with 10 degrees of freedom spreads by √(10/8) of its scale; 200 draws know it to 6%.
    np.testing.assert_allclose(totals, np.sqrt(1.25 * estimates.posterior.totals), rtol=0.25)
    for one in drawn[:3]:
        table = one.layout.slice(0)
        np.testing.assert_allclose(one.cells[:, table].sum(axis=1), one.totals, rtol=1e-6)
        assert np.all(one.cells >= 0)
    # What is not asked again stays where it is, what is known exactly becomes the truth.
    same = learned(estimates, drawn[0], estimates.sigmas, np.random.default_rng(0))
    np.testing.assert_allclose(same.cells, estimates.cells, atol=1e-6 * estimates.totals.max())
    sure = learned(estimates, drawn[0], estimates.sigmas * 1e-4, np.random.default_rng(0))
    np.testing.assert_allclose(sure.cells, drawn[0].cells, rtol=0.02, atol=20)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chance": 0.0}, "chance must lie between 0 and 1"),
        ({"size": 0}, "size must be between 1 and the 10 clients"),
        ({"most": 11}, "most must be between 1 and the 10 clients"),
        ({"size": 3, "most": 4}, "size must not be given with most"),
        ({"redraws": 5}, "redraws must be at least 10"),
    ],
)
def test_wrong_numbers(
    releases: dict[int, list[fw.Release]], options: dict[str, float], message: str
) -> None:
    with pytest.raises(FedwiseError, match=message):
        fw.shortlist(fw.Pool.of(releases[1]), 3, **options)  # type: ignore[arg-type]


def test_a_plan_without_stages_has_nothing_to_ask(small_schema: fw.Schema) -> None:
    once = fw.plan(small_schema)
    pool = fw.Pool.of([fw.release(once, make_people(99), client="a", simulated=True, seed=0)])
    with pytest.raises(PoolError, match="must answer a plan with stages, got plan"):
        fw.shortlist(pool, 1)


def test_release_states_a_stage_its_plan_has(releases: dict[int, list[fw.Release]]) -> None:
    with pytest.raises(fw.FedwiseError, match="states a stage that its plan does not have"):
        msgspec.structs.replace(releases[1][0], stage=7).verify()
    with pytest.raises(fw.FedwiseError, match="states another promise than its plan"):
        msgspec.structs.replace(releases[1][0], stage=2).verify()


def test_chances_are_drawn_to_equal_ones_where_little_is_known() -> None:
    limits = Constraints(include=("a",), exclude=("j",)).resolve(CLIENTS, np.ones(10))
    chance = np.array([1.0, 0.9, 0.8, 0.1, 0.1, 0.05, 0.03, 0.02, 0.0, 0.0])
    found = Standings(chance, chance, chance, chance, 0.0)
    np.testing.assert_array_equal(doubted(found, 1.0, limits, 3).chance, chance)
    nothing = doubted(found, 0.0, limits, 3).chance
    assert nothing[0] == 1.0
    assert nothing[9] == 0.0  # which no doubt puts into a federation
    np.testing.assert_allclose(nothing[1:9], 0.4 * chance[1:9] + 0.6 * 2 / 8)
    half = doubted(found, 0.5, limits, 3).chance
    assert (np.argsort(-half, kind="stable") == np.argsort(-chance, kind="stable")).all()
    np.testing.assert_allclose(half[1], 0.85 * 0.9 + 0.15 * 0.25)


def test_the_known_share_grows_with_epsilon(small_schema: fw.Schema) -> None:
    frames = {name: people(name) for name in CLIENTS}

    def known(epsilon: float) -> float:
        plan = fw.plan(small_schema, epsilon)
        pool = fw.Pool.of(
            fw.release(plan, frame, client=name, simulated=True, seed=4)  # type: ignore[arg-type]
            for name, frame in frames.items()
        )
        return known_share(fw.estimate(pool), fw.Weights())

    found = [known(epsilon) for epsilon in (0.05, 0.5, 5.0)]
    assert 0.0 <= found[0] < found[1] < found[2] <= 1.0
    assert found[0] < 0.6 < 0.95 < found[2]
    assert known(float("inf")) == 1.0
