"""Stages at the owner's: asked again with a shortlist, charged the difference, refused with one sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import fedwise as fw
from conftest import make_people
from fedwise.errors import BudgetExceeded, PlanError, ReleaseError
from fedwise.owner.answer import Answer, answer
from fedwise.owner.archive import Archive
from fedwise.owner.ledger import Ledger
from fedwise.owner.question import Question
from fedwise.owner.shortlisted import Shortlist


@pytest.fixture(scope="module")
def plan(small_schema: fw.Schema) -> fw.Plan:
    return fw.plan(small_schema, stages=[0.1, 1.0])


def listed(plan: fw.Plan, *clients: str, stage: int = 2) -> Shortlist:
    return Shortlist(
        plan_digest=plan.digest, schema_digest=plan.schema_digest, stage=stage, epsilon=1.0, delta=1e-5,
        sizes=(2,), clients=clients, chance=0.05, bounded=False, redraws=40, regret=0.1, regret_after=None,
        objective="PFL", constraints={}, seed=0, standings=(),
    )  # fmt: skip


@pytest.fixture
def ask(tmp_path: Path, plan: fw.Plan) -> Callable[..., Answer]:
    """Ask the owner in this directory, which has a budget of 1."""
    people, path = make_people(400), tmp_path / "budget.db"

    def call(asked: fw.Plan = plan, shortlist: Shortlist | None = None, **options: Any) -> Answer:
        if shortlist is not None:
            shortlist.admit(asked, stage=options["stage"], client="ash")
        opened = lambda: Ledger(path) if path.exists() else Ledger(path, 1.0, 1e-5)  # noqa: E731
        return answer(asked, people, client="ash", ledger=opened, archive=Archive(path), **options)

    return call


def test_the_ledger_is_charged_the_difference(ask: Callable[..., Answer], plan: fw.Plan) -> None:
    first = ask()
    assert first.ledger is not None
    assert first.ledger.balance().spent == pytest.approx(0.1, rel=1e-4)
    assert (first.release.epsilon, first.release.number) == (0.1, 1)
    second = ask(stage=2, shortlist=listed(plan, "ash"))
    assert (second.release.epsilon, second.release.number) == (1.0, 2)
    assert second.ledger is not None
    balance = second.ledger.balance()
    assert balance.spent == pytest.approx(1.0, rel=1e-4)
    assert balance.remaining == pytest.approx(0.0, abs=1e-3)
    assert [charge.epsilon for charge in second.ledger.history()] == [0.1, 1.0]
    again = ask(stage=2, shortlist=listed(plan, "ash"))
    assert again.repeated
    assert again.release == second.release
    assert len(second.ledger.history()) == 2
    pool = fw.Pool.of([first.release, second.release])
    assert pool.epsilons.tolist() == [1.0]
    np.testing.assert_allclose(pool.sigmas[0], plan.sigmas, rtol=1e-5)
    assert fw.Release.decode(second.release.encode()) == second.release
    assert b'"stage": 2' in second.release.encode()


def test_stages_are_answered_in_order(ask: Callable[..., Answer], plan: fw.Plan, tmp_path: Path) -> None:
    with pytest.raises(
        ReleaseError, match=r"stage 2 must follow stage 1, which ledger .* was never charged for"
    ):
        ask(stage=2, shortlist=listed(plan, "ash"))
    assert Ledger(tmp_path / "budget.db").history() == []
    with pytest.raises(PlanError, match=r"got 3; plan .* has stages 1 to 2"):
        ask(stage=3)


def test_an_answer_at_a_smaller_epsilon_is_not_charged_on_top(ask: Callable[..., Answer]) -> None:
    made = ask()
    with pytest.raises(
        ReleaseError, match=r"was answered before at epsilon 0\.1, as it asks; an answer at 0\.05"
    ):
        ask(epsilon=0.05)
    assert made.ledger is not None
    assert [charge.epsilon for charge in made.ledger.history()] == [0.1]


def test_only_a_shortlist_of_this_plan_and_client(ask: Callable[..., Answer], plan: fw.Plan) -> None:
    ask()
    other = fw.plan(plan.schema, stages=[0.2, 1.0])
    for shortlist, message in (
        (listed(other, "ash"), f"must be for plan {plan.digest[:12]}, got one for {other.digest[:12]}"),
        (listed(plan, "ash", stage=3), "must be for stage 2, got one for stage 3"),
        (listed(plan, "elm"), "'ash' must be on the shortlist to answer stage 2, and is not"),
    ):
        with pytest.raises(ReleaseError, match=message):
            ask(stage=2, shortlist=shortlist)
    made = ask()
    assert made.ledger is not None
    assert len(made.ledger.history()) == 1


def test_a_lost_release_is_never_drawn_again(
    ask: Callable[..., Answer], plan: fw.Plan, tmp_path: Path
) -> None:
    first = ask()
    kept = Archive(tmp_path / "budget.db").path(plan, "ash")
    kept.unlink()
    with pytest.raises(
        ReleaseError, match=r"stage 1 of plan .* was charged .* before, and its release is not kept"
    ):
        ask()
    # The ledger knows that stage 1 was paid for, so stage 2 can be answered.
    second = ask(stage=2, shortlist=listed(plan, "ash"))
    assert second.ledger is not None
    assert second.ledger.balance().spent == pytest.approx(1.0, rel=1e-4)
    # The coordinator lost it instead: the second release alone still makes a pool, less precise.
    pool = fw.Pool.of([second.release])
    assert pool.epsilons.tolist() == [1.0]
    assert np.all(pool.sigmas[0] > plan.sigmas)
    assert first.release.number == 1


def test_an_owner_that_allows_less_says_so(ask: Callable[..., Answer], plan: fw.Plan) -> None:
    first = ask(epsilon=0.3)
    assert (first.release.epsilon, first.release.asked) == (0.1, msgspec.UNSET)
    second = ask(stage=2, shortlist=listed(plan, "ash"), epsilon=0.3)
    assert second.release.epsilon == 0.3
    assert second.release.asked is not msgspec.UNSET
    assert second.release.asked.epsilon == 1.0
    assert second.ledger is not None
    assert second.ledger.balance().spent == pytest.approx(0.3, rel=2e-3)
    pool = fw.Pool.of([first.release, second.release])
    assert pool.epsilons.tolist() == [0.3]
    assert pool.spendings[0].parts[1].asked == 1.0
    with pytest.raises(PlanError, match=r"epsilon must be above 0.1, the total after stage 1, got 0.05"):
        ask(stage=2, shortlist=listed(plan, "ash"), epsilon=0.05)


def test_own_epsilon_without_stages(ask: Callable[..., Answer], small_schema: fw.Schema) -> None:
    once = fw.plan(small_schema)
    made = ask(once, epsilon=0.3)
    found = fw.Release.decode(made.release.encode())
    assert (found.epsilon, found.plan.epsilon, found.asked) == (0.3, 0.3, made.release.asked)
    assert "You allow epsilon 0.3 where 1 is asked" in Question.of(once, epsilon=0.3).sentence
    lying = msgspec.structs.replace(found, asked=msgspec.structs.replace(made.release.asked, epsilon=0.2))
    with pytest.raises(ReleaseError, match="allowed less than asked, and states more"):
        lying.verify()


def test_an_owner_refuses_the_second_stage(ask: Callable[..., Answer], plan: fw.Plan) -> None:
    first = ask(max_epsilon=0.2)
    with pytest.raises(BudgetExceeded, match=r"must ask for epsilon 0.2 at most"):
        ask(stage=2, shortlist=listed(plan, "ash"), max_epsilon=0.2)
    assert first.ledger is not None
    assert len(first.ledger.history()) == 1
    assert (
        "You are asked again. Stage 2 of 2: the total epsilon rises from 0.1 to 1."
        in Question.of(plan, stage=2).sentence
    )


def test_two_draws_of_one_stage_are_not_one_promise(tmp_path: Path, plan: fw.Plan) -> None:
    ledger = Ledger(tmp_path / "b.db", 3.0, 1e-5)
    people = make_people(50)
    fw.release(plan, people, client="ash", ledger=ledger)
    with pytest.raises(ReleaseError, match=r"charged to ledger .* before"):
        fw.release(plan, people, client="ash", ledger=ledger)
    once = fw.plan(plan.schema)
    for _ in range(2):
        fw.release(once, people, client="elm", ledger=ledger)
    assert ledger.balance().spent > 1.4
    simulated = [
        fw.release(plan, people, client="ash", simulated=True, seed=1, stage=stage) for stage in (1, 2)
    ]
    noise = [
        (
            r.counts
            - fw.release(fw.plan(plan.schema, float("inf")), people, client="x", no_privacy=True).counts
        )
        for r in simulated
    ]
    assert abs(np.corrcoef(noise[0], noise[1])[0, 1]) < 0.6  # stages have their own draws
