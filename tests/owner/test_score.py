"""Scores: one number along public points, whatever the coordinator asks for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedwise as fw
from conftest import make_people
from fedwise.errors import DataError, PlanError, ReleaseError
from fedwise.owner.answer import Answer, answer
from fedwise.owner.archive import Archive
from fedwise.owner.ledger import Ledger
from fedwise.owner.question import Question
from fedwise.owner.score import MAX_POINTS, Points, Score
from fedwise.privacy.scales import SLACK
from fedwise.privacy.staging import SCORE_PARTS

TOTALS = [0.05, 0.1, 1.0]


@pytest.fixture(scope="module")
def plan(small_schema: fw.Schema) -> fw.Plan:
    return fw.plan(small_schema, stages=TOTALS, score=True)


def by(plan: fw.Plan, **points: dict[tuple[int, int], int]) -> tuple[Points, ...]:
    """Points of some cells, 0 elsewhere, by pair ``x_y``."""
    parts = []
    for table in plan.tables:
        name = "_".join(table.pair)
        if name in points:
            cells = np.zeros(table.shape, dtype=int)
            for cell, value in points[name].items():
                cells[cell] = value
            parts.append(Points(table.pair, tuple(cells.ravel().tolist())))
    assert len(parts) == len(points)
    return tuple(parts)


@pytest.fixture(scope="module")
def score(plan: fw.Plan) -> Score:
    """Rich men score 1, poor women −1."""
    return Score(low=-1, high=1, points=by(plan, SEX_RICH={(0, 1): 2, (1, 0): -2}))


def test_points_of_all_pairs_add_up_to_a_score_by_hand(plan: fw.Plan) -> None:
    score = Score(low=-1, high=3, points=by(plan, SEX_RICH={(0, 1): 2, (1, 0): -2}, AGE_SEX={(2, 0): 1}))
    # From −1 to 3 points lie evenly: 0 points are −.5, 1 point is 0, 2 points are .5.
    rows = pl.DataFrame(
        {
            "AGE": [50, 30, 50, 50, 30],
            "JOB": ["shop"] * 5,
            "SEX": [1, 1, 2, 2, 2],
            "INCOME": [90_000.0, 90_000.0, 90_000.0, 10_000.0, 10_000.0],
        }
    )
    codes = plan.schema.encode(rows)
    assert score.points_of(plan.layout, codes).tolist() == [3, 2, 0, -2, -2]
    assert score.of_records(plan, codes).tolist() == [10, 5, -5, -10, -10]
    assert score.count(plan, rows).exact.tolist() == [-10]
    wide = Score(low=-2, high=1, points=score.points)  # halves of a tenth are rounded up: 0 points are 1/3
    assert wide.of_records(plan, codes).tolist() == [10, 10, 3, -10, -10]


@given(
    st.lists(st.integers(-MAX_POINTS, MAX_POINTS), min_size=4, max_size=4),
    st.integers(-MAX_POINTS, MAX_POINTS - 1),
    st.integers(0, 50),
)
def test_a_record_changes_the_sum_by_one_at_most(points: list[int], low: int, gone: int) -> None:
    plan = fw.plan(fw.Schema.parse(_SCHEMA), stages=TOTALS, score=True)
    score = Score(low=low, high=low + 1, points=(Points(("SEX", "RICH"), tuple(points)),))
    people = make_people(60, 3)
    whole = int(score.count(plan, people).exact[0])
    less = int(score.count(plan, people.filter(pl.int_range(pl.len()) != gone)).exact[0])
    assert abs(whole - less) <= SCORE_PARTS


_SCHEMA = """
name = "two"
[columns.SEX]
role = "sensitive"
levels = [1, 2]
[columns.RICH]
role = "target"
rule = "INCOME > 50000"
"""


@pytest.mark.parametrize(
    "change",
    [
        {"low": 1},  # no room between the limits
        {"high": MAX_POINTS + 1},
        {"points": ()},
        {"points": (Points(("SEX", "RICH"), (0, 0, 0)),)},
        {"points": (Points(("SEX", "WEALTH"), (0, 0, 0, 0)),)},
        {"points": (Points(("SEX", "RICH"), (0, 0, 0, 0)),) * 2},
        {"points": (Points(("SEX", "RICH"), (0, 0, 0, MAX_POINTS + 1)),)},
    ],
)
def test_a_rule_that_does_not_fit_is_refused(plan: fw.Plan, score: Score, change: dict[str, Any]) -> None:
    bad = msgspec.structs.replace(score, **change)
    with pytest.raises(ReleaseError, match="score must give points for pairs of columns of plan"):
        Question.of(plan, stage=2, score=bad)


def test_a_score_belongs_to_its_stage(plan: fw.Plan, score: Score, small_schema: fw.Schema) -> None:
    with pytest.raises(ReleaseError, match=r"stage 2 of plan .* must come with what it scores by"):
        Question.of(plan, stage=2)
    for other, stage in ((plan, 1), (plan, 3), (fw.plan(small_schema), 1)):
        with pytest.raises(ReleaseError, match="score must be given for a stage that asks for one"):
            Question.of(other, stage=stage, score=score)
    assert "Asked is one number" in Question.of(plan, stage=2, score=score).sentence
    with pytest.raises(PlanError, match="score must be given with stages"):
        fw.plan(small_schema, score=True)


@pytest.fixture
def ask(tmp_path: Path, plan: fw.Plan) -> Callable[..., Answer]:
    """Ask the owner in this directory, which has a budget of 1."""
    people, path = make_people(400), tmp_path / "budget.db"

    def call(**options: Any) -> Answer:
        opened = lambda: Ledger(path) if path.exists() else Ledger(path, 1.0, 1e-5)  # noqa: E731
        return answer(plan, people, client="ash", ledger=opened, archive=Archive(path), **options)

    return call


def test_all_stages_cost_their_total(ask: Callable[..., Answer], plan: fw.Plan, score: Score) -> None:
    made = [ask(), ask(stage=2, score=score), ask(stage=3)]
    assert made[1].ledger is not None
    ledger = made[-1].ledger
    assert ledger is not None
    assert [charge.epsilon for charge in ledger.history()] == TOTALS
    assert sum(charge.mu**2 for charge in ledger.history()[:2]) ** 0.5 == pytest.approx(plan.stage(2).mu)
    assert ledger.balance().spent == pytest.approx(1.0, rel=1e-4)
    scored = made[1].release
    assert (scored.score, scored.sigmas.tolist()) == (score.digest, list(plan.stage(2).drawn))
    assert abs(int(scored.counts[0])) < 400 + 10 * scored.sigmas[0]
    assert fw.Release.decode(scored.encode()) == scored
    pool = fw.Pool.of([one.release for one in made])
    assert pool.epsilons.tolist() == [1.0]
    np.testing.assert_allclose(pool.sigmas[0], plan.sigmas, rtol=1e-5)
    assert pool.scores is not None
    assert pool.scores.sums.tolist() == [scored.counts[0] / SCORE_PARTS]
    assert pool.scores.sigmas.tolist() == pytest.approx(list(plan.stage(2).sigmas))


def test_whoever_goes_ahead_answers_no_score(ask: Callable[..., Answer], plan: fw.Plan) -> None:
    """Tables again after the first stage: allowed, and charged no less than they cost."""
    with pytest.raises(ReleaseError, match="stage 3 must follow stage 2"):
        ask(stage=3)
    made = [ask(), ask(stage=3)]
    ledger = made[-1].ledger
    assert ledger is not None
    charged = sum(charge.mu**2 for charge in ledger.history()) ** 0.5
    assert charged == pytest.approx(plan.mu)
    cost = float(np.sum(np.array([*plan.stage(1).sigmas, *plan.stage(3).sigmas]) ** -2.0)) ** 0.5
    assert cost < charged
    assert ledger.balance().spent == pytest.approx(1.0, rel=1e-4)
    assert fw.Pool.of([one.release for one in made]).scores is None


def test_no_stage_is_charged_less_than_its_noise_costs(
    small_schema: fw.Schema, score: Score, tmp_path: Path
) -> None:
    """Stage 3 at several smaller epsilons after stages of a plan whose own totals cover more than they need."""
    plan = fw.plan(small_schema, 3.0, stages=[0.2, 0.4, 3.0], score=True)
    for number, stage in enumerate(plan.staged, 1):
        alone = float(np.sum(np.array(stage.sigmas) ** -2.0)) ** 0.5
        assert plan.charge(number) >= (1 + SLACK) * alone * (1 - 1e-9)
    # A plan that states a large total after the score, and so little to add for the tables, is charged for their noise.
    second = msgspec.structs.replace(plan.staged[1], mu=plan.staged[2].mu * 0.999)
    lying = msgspec.structs.replace(plan, stages=(plan.staged[0], second, plan.staged[2]))
    assert lying.charge(3) == pytest.approx(plan.staged[2].own_mu)
    people, path = make_people(300), tmp_path / "budget.db"
    ledger, drawn = Ledger(path, 5.0, 1e-5), 0.0
    for stage, by, epsilon in (
        (1, None, None),
        (2, score, None),
        (3, None, 0.6),
        (3, None, 0.7),
        (3, None, 0.8),
    ):
        made = fw.release(plan, people, client="ash", ledger=ledger, stage=stage, score=by, epsilon=epsilon)
        drawn += float(np.sum(np.array(made.plan.stage(stage).sigmas) ** -2.0))
    assert sum(charge.mu**2 for charge in ledger.history()) >= drawn


def test_stages_that_cannot_be_asked_are_refused(
    small_schema: fw.Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(PlanError, match="stages must be three beside a score"):
        fw.plan(small_schema, 2.0, stages=[0.05, 0.1, 0.5, 2.0], score=True)
    with pytest.raises(PlanError, match="score needs features or sensitive columns"):
        fw.plan(fw.Schema.parse(_LABEL), stages=TOTALS, score=True)
    # Where the accountant's rounding would be charged (here: any cover at all).
    monkeypatch.setattr("fedwise.privacy.staging.MOST_COVER", 1.0)
    with pytest.raises(PlanError, match="stages beside a score must begin smaller"):
        fw.plan(small_schema, stages=TOTALS, score=True)


_LABEL = """
name = "label"
[columns.RICH]
role = "target"
rule = "INCOME > 50000"
"""


def test_a_score_does_not_follow_the_tables_it_comes_before(
    ask: Callable[..., Answer], plan: fw.Plan, score: Score
) -> None:
    ask()
    assert "rises from 0.05 or 0.1 to 1" in Question.of(plan, stage=3).sentence
    last = ask(stage=3)
    with pytest.raises(
        ReleaseError, match="stage 2 of plan .* must not follow a later one".replace(".*", ".+")
    ):
        ask(stage=2, score=score)
    assert last.ledger is not None
    assert len(last.ledger.history()) == 2


def test_a_node_knows_its_number_of_records_by_its_tables(
    ask: Callable[..., Answer], score: Score, tmp_path: Path
) -> None:
    tables = ask().release
    ask(stage=2, score=score)
    assert Archive(tmp_path / "budget.db").newest("ash") == tables


def test_joint_tables_score_as_pairs_do(small_schema: fw.Schema, plan: fw.Plan, score: Score) -> None:
    joint = fw.plan(small_schema, stages=TOTALS, score=True, joint=True)
    people = make_people(300)
    assert score.count(joint, people).exact.tolist() == score.count(plan, people).exact.tolist()
    assert [len(stage.sigmas) for stage in joint.as_pairs.staged] == [len(plan.tables), 1, len(plan.tables)]
    made = fw.release(joint, people, client="ash", simulated=True, seed=0, stage=2, score=score)
    assert fw.Release.decode(made.encode()) == made
    first = fw.release(joint, people, client="ash", simulated=True, seed=0)
    pool = fw.Pool.of([first, made])
    assert pool.scores is not None
    assert pool.joint is not None


def test_a_score_is_drawn_once(ask: Callable[..., Answer], plan: fw.Plan, score: Score) -> None:
    ask()
    first = ask(stage=2, score=score)
    other = Score(low=-1, high=1, points=by(plan, SEX_RICH={(0, 0): 2}))
    again = ask(stage=2, score=other)  # a second question under the same stage gets the first answer
    assert again.repeated
    assert again.release == first.release
    assert again.ledger is not None
    assert len(again.ledger.history()) == 2


def test_an_owner_that_allows_less_answers_a_noisier_score(
    ask: Callable[..., Answer], plan: fw.Plan, score: Score
) -> None:
    ask()
    made = ask(stage=2, score=score, epsilon=0.08).release
    assert made.sigmas[0] > plan.stage(2).drawn[0]
    assert (made.epsilon, made.score) == (0.08, score.digest)
    assert [stage.scored for stage in made.plan.staged] == [False, True]


@pytest.mark.parametrize(
    "change", [{"score": msgspec.UNSET}, {"score": "\x1b[31mred"}, {"stage": 1}, {"stage": 3}]
)
def test_a_release_of_a_score_holds_together(
    ask: Callable[..., Answer], score: Score, change: dict[str, Any]
) -> None:
    ask()
    made = ask(stage=2, score=score).release
    with pytest.raises(ReleaseError):
        msgspec.structs.replace(made, **change).verify()


def test_rows_that_do_not_fit_cost_nothing(
    ask: Callable[..., Answer], plan: fw.Plan, score: Score, tmp_path: Path
) -> None:
    ask()
    ledger = Ledger(tmp_path / "budget.db")
    with pytest.raises(DataError):
        fw.release(plan, make_people(0), client="ash", ledger=ledger, stage=2, score=score)
    assert len(ledger.history()) == 1


def test_a_pool_takes_scores_by_one_rule_only(plan: fw.Plan, score: Score) -> None:
    def made(client: str, stage: int = 1, by: Score | None = None) -> fw.Release:
        return fw.release(
            plan, make_people(300, ord(client)), client=client, simulated=True, seed=1, stage=stage, score=by
        )

    first = [made(name) for name in "abc"]
    pool = fw.Pool.of([*first, made("a", 2, score), made("c", 2, score)])
    assert pool.scores is not None
    assert np.isfinite(pool.scores.sums).tolist() == [True, False, True]
    rest = pool.without(["a"]).scores
    assert rest is not None
    assert np.isfinite(rest.sums).tolist() == [False, True]
    np.testing.assert_array_equal(pool.matrix, fw.Pool.of(first).matrix)
    other = Score(low=-2, high=1, points=score.points)
    with pytest.raises(fw.FedwiseError, match="answers another score than"):
        fw.Pool.of([*first, made("a", 2, score), made("c", 2, other)])
    with pytest.raises(fw.FedwiseError, match="answers a score, and no tables of its client are there"):
        fw.Pool.of([*first[:2], made("c", 2, score)])
    # A score of another plan, or of another edition of it, is along another slope or of other data.
    again = plan.at_edition(2)
    later = fw.release(again, make_people(300), client="a", simulated=True, seed=1)
    aside = fw.Pool.of([*first, made("a", 2, score), made("c", 2, score), later]).scores
    assert aside is not None
    assert np.isfinite(aside.sums).tolist() == [False, False, True]
    # Single numbers may be equal: that is no copy.
    equal = made("a", 2, score)
    assert len(fw.Pool.of([*first, equal, msgspec.structs.replace(equal, client="b")])) == 3
