"""Scores in a search: what is scored by, what the answers say, and who is asked and seated then."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import polars as pl
import pytest

import fedwise as fw
from conftest import make_people
from fedwise.errors import FedwiseError, PoolError
from fedwise.estimation import Estimates, estimate
from fedwise.objective.pfl import Weights, loss
from fedwise.owner.tables import count
from fedwise.pool.intake import Scores
from fedwise.search.client_errors import slope_at
from fedwise.search.scores import informed, make_score, told

CLIENTS = tuple("abcdefghijkl")
TOTALS = [0.2, 0.4, 3.0]


@pytest.fixture(scope="module")
def plan(small_schema: fw.Schema) -> fw.Plan:
    return fw.plan(small_schema, 3.0, stages=TOTALS, score=True)


@pytest.fixture(scope="module")
def frames() -> dict[str, pl.DataFrame]:
    """Clients that differ: in the later half income has less to do with anything."""
    found = {}
    for number, name in enumerate(CLIENTS):
        people, rng = make_people(900, number), np.random.default_rng(number)
        mixed = rng.random(len(people)) < 0.08 * number
        income = people["INCOME"].to_numpy().copy()
        income[mixed] = rng.permutation(income[mixed])
        found[name] = people.with_columns(pl.Series("INCOME", income))
    return found


@pytest.fixture(scope="module")
def truth(plan: fw.Plan, frames: dict[str, pl.DataFrame]) -> Estimates:
    exact = np.stack([count(plan.schema.encode(rows), plan.layout).exact for rows in frames.values()])
    return Estimates.plain(CLIENTS, plan.schema, plan.layout, exact.astype(float))


class Asked:
    """Everybody's answers, drawn when asked."""

    def __init__(self, plan: fw.Plan, frames: dict[str, pl.DataFrame]) -> None:
        self.plan, self.frames, self.releases = plan, frames, dict[tuple[str, int], fw.Release]()

    def ask(self, names: tuple[str, ...], stage: int, listed: fw.Shortlist | None = None) -> None:
        for name in names:
            self.releases[name, stage] = fw.release(
                self.plan, self.frames[name], client=name, simulated=True, seed=5, stage=stage,
                score=None if listed is None else listed.scored,
            )  # fmt: skip

    def pool(self, kept: fw.Shortlist | None) -> fw.Pool:
        pool = fw.Pool.of(self.releases.values())
        pool.shortlist = kept
        return pool


def test_the_slope_is_that_of_the_loss(truth: Estimates) -> None:
    """A little of a client more moves the loss as its proportions along the slope say."""
    members = np.arange(6)
    slope = slope_at(truth, members, Weights())
    step = 1e-6
    moved = truth.cells[members].sum(axis=0)
    total = truth.totals[members].sum()

    def at(cells: np.ndarray) -> float:
        one = Estimates.plain(("all",), truth.schema, truth.layout, cells[None])
        return loss(one, np.array([0]), Weights())

    whole = moved / total
    for other in (7, 11):
        own = truth.cells[other] / truth.totals[other]
        numeric = (at((1 - step) * whole + step * own) - at((1 + step) * whole - step * own)) / (2 * step)
        assert numeric == pytest.approx(slope @ (own - whole), rel=1e-4, abs=1e-7)


def test_scores_tell_clients_apart_as_the_loss_does(
    truth: Estimates, plan: fw.Plan, frames: dict[str, pl.DataFrame]
) -> None:
    members = np.arange(6)
    score = make_score(truth, members, Weights(), seed=0)
    sums = np.array([score.of_records(plan, plan.schema.encode(rows)).sum() for rows in frames.values()])
    pulls = (truth.cells / truth.totals[:, None]) @ slope_at(truth, members, Weights())
    assert np.corrcoef(sums / truth.totals, pulls)[0, 1] > 0.95
    inside = np.concatenate([score.of_records(plan, plan.schema.encode(rows)) for rows in frames.values()])
    assert 0.1 < np.mean(np.abs(inside) == 10) < 0.6  # limits that cut some, and not most
    assert score == make_score(truth, members, Weights(), seed=0)


def test_what_scores_say_is_the_normal_posterior(plan: fw.Plan, frames: dict[str, pl.DataFrame]) -> None:
    asked = Asked(plan, frames)
    asked.ask(CLIENTS, 1)
    estimates = estimate(asked.pool(None))
    members = np.arange(4)
    pulls = (estimates.cells / estimates.totals[:, None]) @ slope_at(estimates, members, Weights())
    # A precise score that says twice of what the tables say, and one that nobody was asked for.
    sums = 2.0 * (pulls - pulls.mean()) * estimates.totals
    sums[0] += 900.0
    sums[-1] = np.nan
    found = told(estimates, Scores(sums, np.full(12, 1e-3)), members, Weights())
    assert found.shift[-1] == 0.0
    assert found.left[-1] == 1.0
    assert (found.left[:-1] < 1.0).all()
    assert int(np.argmax(found.shift)) == 0
    # Nothing but noise says nothing.
    vague = told(estimates, Scores(sums, np.full(12, 1e6)), members, Weights())
    np.testing.assert_allclose(vague.shift, 0.0, atol=1e-3 * abs(found.shift[0]))
    np.testing.assert_allclose(vague.left, 1.0, atol=1e-3)


def test_informed_tables_pull_as_they_are_told(plan: fw.Plan, frames: dict[str, pl.DataFrame]) -> None:
    asked = Asked(plan, frames)
    asked.ask(CLIENTS, 1)
    estimates, members, everybody = estimate(asked.pool(None)), np.arange(4), np.arange(12)
    slope = slope_at(estimates, members, Weights())
    rng = np.random.default_rng(0)
    scores = Scores(rng.normal(0.0, 60.0, 12), np.full(12, 40.0))
    scores.sums[3] = np.nan
    moved = informed(estimates, scores, members, Weights(), everybody)
    layout, sizes = estimates.layout, estimates.totals
    shift = told(estimates, scores, members, Weights()).shift * sizes[members].sum() / sizes
    assert np.abs(shift).max() > 1e-3
    np.testing.assert_allclose((moved.cells - estimates.cells) @ slope / sizes, shift, atol=1e-9)
    np.testing.assert_array_equal(moved.cells[3], estimates.cells[3])
    for j in range(layout.tables):  # still tables of the same people
        table = moved.cells[:, layout.slice(j)].reshape(-1, *layout.shapes[j])
        down, across = layout.sides(j)
        np.testing.assert_allclose(table.sum(axis=2), moved.marginals[:, down], rtol=1e-6)
        np.testing.assert_allclose(table.sum(axis=1), moved.marginals[:, across], rtol=1e-6)
    wild = informed(estimates, Scores(scores.sums * 1e3, scores.sigmas), members, Weights(), everybody)
    assert (wild.cells >= 0.0).all()


def test_first_a_few_answer_then_all_score_then_the_rest(
    plan: fw.Plan, frames: dict[str, pl.DataFrame], tmp_path: Path
) -> None:
    asked, order, listed = Asked(plan, frames), list[tuple[int, int]](), None
    asked.ask(CLIENTS, 1)
    while listed is None or not (listed.stage == 3 and listed.complete):
        listed = fw.shortlist(asked.pool(listed), 3, size=6, waves=3, redraws=10, threads=1)
        order.append((listed.stage, len(listed.added)))
        if listed.scored is not None:
            ahead = {name for name, stage in asked.releases if stage == 3}
            assert set(listed.clients) == set(CLIENTS) - ahead
            assert listed.out
            assert "one number" in listed.statement
            assert b'"score"' in listed.encode()
            listed.save(tmp_path / "shortlist.json")
            assert fw.Shortlist.load(tmp_path / "shortlist.json") == listed
        asked.ask(listed.added, listed.stage, listed)
    assert order == [(3, 2), (2, 10), (3, 2), (3, 2)]
    pool = asked.pool(listed)
    assert sorted(pool.epsilons.tolist()) == [0.4] * 6 + [3.0] * 6
    with pytest.raises(PoolError, match="the last one; run fedwise select"):
        fw.shortlist(pool, 3, size=6, waves=3)
    # Those who answered no more than a score take no seat, unless they are included or too few are left.
    last = {name for name, stage in asked.releases if stage == 3}
    selection = fw.select(pool, 3, seed=0, evidence="none")
    assert set(selection.clients) <= last
    assert any("no more than the first tables and a score" in alert for alert in selection.alerts)
    other = next(name for name in CLIENTS if name not in last)
    assert other in fw.select(pool, 3, include=[other], evidence="none").clients
    assert len(fw.select(pool, 8, evidence="none").clients) == 8


def test_without_waves_the_score_comes_first(plan: fw.Plan, frames: dict[str, pl.DataFrame]) -> None:
    asked = Asked(plan, frames)
    asked.ask(CLIENTS, 1)
    first = fw.shortlist(asked.pool(None), 3, size=5, waves=1, redraws=10)
    assert (first.stage, first.complete, len(first.added)) == (2, True, 12)
    asked.ask(first.added, 2, first)
    for kept in (first, None):  # the scores tell that they were asked
        second = fw.shortlist(asked.pool(kept), 3, size=5, waves=1, redraws=10)
        assert (second.stage, second.complete, len(second.added)) == (3, True, 5)
        assert second.scored is None


def test_waves_with_a_score_go_on_as_they_began(plan: fw.Plan, frames: dict[str, pl.DataFrame]) -> None:
    asked = Asked(plan, frames)
    asked.ask(CLIENTS, 1)
    first = fw.shortlist(asked.pool(None), 3, size=6, redraws=10)
    assert not isinstance(first.wave, msgspec.UnsetType)
    assert (first.stage, first.wave.of, len(first.added)) == (3, 4, 2)
    asked.ask(first.added, 3, first)
    with pytest.raises(FedwiseError, match="waves must be 4, as in the shortlist of wave 1"):
        fw.shortlist(asked.pool(first), 3, size=6, waves=2)
    with pytest.raises(FedwiseError, match="objective must be the loss where the plan asks for a score"):
        fw.shortlist(asked.pool(first), 3, size=6, objective=fw.Forecast("accuracy"))


def test_only_those_who_went_ahead_count_as_asked(plan: fw.Plan, frames: dict[str, pl.DataFrame]) -> None:
    """A client that is excluded, or came late, is on no list of those asked for tables."""
    asked, listed = Asked(plan, frames), None
    asked.ask(CLIENTS[:-1], 1)
    for number in range(3):
        rules = fw.Constraints(exclude=("k", "l") if number == 2 else ("k",))
        listed = fw.shortlist(asked.pool(listed), 3, most=4, waves=2, redraws=10, constraints=rules)
        asked.ask(listed.added, listed.stage, listed)
        if number == 1:
            asked.ask(CLIENTS[-1:], 1)
            assert len(listed.ahead) == 2
    assert not {"k", "l"} & set(listed.clients)
    assert listed.complete
    assert len(listed.clients) == 4


def test_a_lost_list_of_those_ahead_is_made_again(plan: fw.Plan, frames: dict[str, pl.DataFrame]) -> None:
    asked = Asked(plan, frames)
    asked.ask(CLIENTS, 1)
    first = fw.shortlist(asked.pool(None), 3, size=6, redraws=10)
    asked.ask(first.added, 3)
    again = fw.shortlist(asked.pool(None), 3, size=6, redraws=10)
    assert again.scored is not None
    assert set(again.ahead) == set(first.added)
    broken = msgspec.structs.replace(again, wave=msgspec.structs.replace(again.wave, number=7))
    with pytest.raises(FedwiseError, match="must have a wave of 1 to 4, got 7"):
        fw.shortlist(asked.pool(broken), 3, size=6, redraws=10)


def test_a_score_serves_the_loss_of_its_plan(plan: fw.Plan, frames: dict[str, pl.DataFrame]) -> None:
    asked = Asked(plan, frames)
    asked.ask(CLIENTS, 1)
    with pytest.raises(FedwiseError, match="weights must be the plan's where it asks for a score"):
        fw.shortlist(asked.pool(None), 3, weights=Weights(beta=3.0))
    listed = fw.shortlist(asked.pool(None), 3, waves=1, redraws=10)
    asked.ask(CLIENTS, 2, listed)
    pool, tables = asked.pool(None), Asked(plan, frames)
    tables.ask(CLIENTS, 1)
    for weights, same in ((Weights(beta=3.0), True), (None, False)):
        found, plain = (fw.select(p, 3, weights=weights, evidence="none") for p in (pool, tables.pool(None)))
        assert (found.loss == plain.loss) is same


def test_scores_move_the_order_in_which_clients_are_asked(
    plan: fw.Plan, frames: dict[str, pl.DataFrame]
) -> None:
    """A score of nearly no noise that praises one client: hardly any tables speak against it."""
    asked = Asked(plan, frames)
    asked.ask(CLIENTS, 1)
    first = fw.shortlist(asked.pool(None), 3, size=4, waves=1, redraws=10)
    asked.ask(CLIENTS, 2, first)
    pool = asked.pool(first)
    praised = []
    for name in CLIENTS:
        sums = np.zeros(12)
        sums[CLIENTS.index(name)] = -600.0  # low scores lower the loss
        pool.scores = Scores(sums, np.full(12, 1e-3))
        praised.append(name in fw.shortlist(pool, 3, size=4, waves=1, redraws=10, threads=1).clients)
    assert sum(praised) >= 9  # of twelve, where four are asked whatever the scores
