"""Plans with stages: the total after each stage is the promise, in every accountant."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

import fedwise as fw
from fedwise.data import synthetic
from fedwise.errors import PlanError
from fedwise.owner.question import own_plan
from fedwise.privacy.accounting import discrete_gaussian, gaussian_curve
from fedwise.privacy.judgement import LATTICE_BESIDE_SCORE, composed
from fedwise.privacy.staging import LEAST_SCORE_SIGMA, SCORE_PARTS


def drawn(plan: fw.Plan, stage: int) -> tuple[np.ndarray, float | None]:
    """Scales of all tables of all stages up to one, and of the score."""
    stages = plan.staged[:stage]
    score = next((found.sigmas[0] for found in stages if found.scored), None)
    return np.concatenate([np.array(found.sigmas) for found in stages if not found.scored]), score


@pytest.mark.parametrize(
    ("stages", "score"),
    [
        ([0.1, 1.0], False), ([0.1, 0.3, 1.0], False), ([0.5, 4.0], False), ([0.05, 0.1, 1.0], True),
        ([0.1, 0.3, 1.0], True),
    ],
)  # fmt: skip
@pytest.mark.parametrize("allocation", ["weighted", "uniform"])
def test_totals_are_the_promise_in_the_discrete_accountant(
    stages: list[float], allocation: str, score: bool
) -> None:
    plan = fw.plan(synthetic.schema(), stages[-1], stages=stages, allocation=allocation, score=score)
    plan.verify()
    for number, total in enumerate(stages, 1):
        tables, sum_of_scores = drawn(plan, number)
        spent = composed(tables, score=sum_of_scores).epsilon(plan.delta)
        assert 0.99 * total <= spent <= total
    squares = sum(plan.charge(number) ** 2 for number in range(1, len(stages) + 1))
    assert squares == pytest.approx(plan.mu**2)


@pytest.mark.parametrize("score", [False, True])
def test_totals_are_the_promise_in_an_independent_accountant(small_schema: fw.Schema, score: bool) -> None:
    plan = fw.plan(small_schema, 1.0, stages=[0.1, 0.4, 1.0], score=score)
    assert [len(stage.sigmas) for stage in plan.staged] == [len(plan.tables), 1 if score else 6, 6]
    together = None
    for number, total in enumerate((0.1, 0.4, 1.0), 1):
        for sigma in plan.stage(number).sigmas:
            one = pld.from_gaussian_mechanism(sigma, value_discretization_interval=1e-4)
            together = one if together is None else together.compose(one)
        assert together is not None
        assert 0.99 * total <= together.get_epsilon_for_delta(plan.delta) <= total


@pytest.mark.parametrize("sigma", [LEAST_SCORE_SIGMA, 12.5, 36.4])
def test_a_score_in_parts_costs_no_more_than_the_accountant_says(sigma: float) -> None:
    """Exact δ(ε) of the discrete Gaussian in tenths of a score, moved by a whole one, beside the Gaussian's."""
    _, mass = discrete_gaussian(sigma * SCORE_PARTS)
    ahead = np.concatenate([np.zeros(SCORE_PARTS), mass])
    behind = np.concatenate([mass, np.zeros(SCORE_PARTS)])
    epsilons = np.linspace(0.0, 8.0 / sigma, 400)
    exact = np.array([np.maximum(ahead - np.exp(epsilon) * behind, 0.0).sum() for epsilon in epsilons])
    stated = composed(np.empty(0), score=sigma)
    counted = exact > 1e-12
    assert counted.sum() > 300
    assert (gaussian_curve((1 + LATTICE_BESIDE_SCORE) / sigma, epsilons) >= exact)[counted].all()
    assert all(
        stated.delta(epsilon) >= found
        for epsilon, found in zip(epsilons[counted], exact[counted], strict=True)
    )
    # Without what the lattice adds it would not hold: the check can fail.
    assert (
        sigma > LEAST_SCORE_SIGMA
        or not (gaussian_curve((1 - LATTICE_BESIDE_SCORE) / sigma, epsilons) >= exact)[counted].all()
    )


def test_a_score_needs_noise(small_schema: fw.Schema) -> None:
    with pytest.raises(PlanError, match="must ask for a score at a small epsilon"):
        fw.plan(small_schema, 4.0, stages=[0.5, 1.5, 4.0], score=True)


def test_precisions_add(small_schema: fw.Schema) -> None:
    once, staged = fw.plan(small_schema), fw.plan(small_schema, stages=[0.1, 1.0])
    np.testing.assert_allclose(staged.sigmas, once.sigmas, rtol=2e-3)
    first = fw.plan(small_schema, 0.1)
    np.testing.assert_allclose(staged.stage(1).sigmas, first.sigmas, rtol=1e-6)
    assert "In 2 stages: the total epsilon after each is 0.1, 1" in staged.promise


def test_a_plan_without_stages_is_what_it_was(small_schema: fw.Schema) -> None:
    plan = fw.plan(small_schema)
    assert b"stages" not in plan.encode()
    assert plan.staged == ()
    assert plan.stage(1).sigmas == tuple(plan.sigmas.tolist())
    assert plan.charge(1) == plan.mu
    with pytest.raises(PlanError, match=r"stage must be one of the plan's, got 2; plan .* has no stages"):
        plan.stage(2)
    again = fw.Plan.decode(fw.plan(small_schema, stages=[0.1, 1.0]).encode())
    assert [stage.epsilon for stage in again.staged] == [0.1, 1.0]
    with pytest.raises(PlanError, match="has stages 1 to 2"):
        again.stage(3)


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ([1.0], "at least two finite totals"),
        ([], "at least two finite totals"),
        ([0.5, 0.5, 1.0], "stages must grow"),
        ([0.9, 0.5, 1.0], "stages must grow"),
        ([0.1, 0.5], "must end at the plan's epsilon 1, got 0.5; pass epsilon=0.5"),
        ([0.999, 1.0], "must differ by more"),
        ([0.0, 1.0], "epsilon must be above 0"),
    ],
)
def test_stages_that_mean_nothing(small_schema: fw.Schema, stages: list[float], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        fw.plan(small_schema, stages=stages)
    with pytest.raises(PlanError, match="finite totals"):
        fw.plan(small_schema, float("inf"), stages=[0.1, float("inf")])


def test_dishonest_stages_are_refused(small_schema: fw.Schema) -> None:
    plan = fw.plan(small_schema, stages=[0.1, 1.0])

    def signed(**changes: object) -> fw.Plan:
        other = msgspec.structs.replace(plan, **changes)
        return msgspec.structs.replace(other, digest=other.compute_digest())

    first, second = plan.staged
    halved = msgspec.structs.replace(first, sigmas=tuple(s / 2 for s in first.sigmas))
    with pytest.raises(PlanError, match="do not sum to its promise"):
        signed(stages=(halved, second)).verify()
    # Swapped: the sum is the same, but the first stage would cost more than it says.
    with pytest.raises(PlanError, match="less noise than its promise needs"):
        signed(
            stages=(
                msgspec.structs.replace(first, sigmas=second.sigmas),
                msgspec.structs.replace(second, sigmas=first.sigmas),
            )
        ).verify()
    with pytest.raises(PlanError, match="charges less than its noise costs"):
        signed(stages=(msgspec.structs.replace(first, mu=first.mu / 2), second)).verify()
    with pytest.raises(PlanError, match="do not fit its tables"):
        signed(stages=(msgspec.structs.replace(first, sigmas=first.sigmas[1:]), second)).verify()


def test_an_owner_that_allows_less(small_schema: fw.Schema) -> None:
    once = fw.plan(small_schema)
    own = own_plan(once, 0.3)
    assert (own.epsilon, own.delta, own.layout) == (0.3, once.delta, once.layout)
    assert np.all(own.sigmas > once.sigmas)
    assert own_plan(once, 2.0) is once
    staged = fw.plan(small_schema, stages=[0.1, 1.0])
    assert [stage.epsilon for stage in own_plan(staged, 0.3).staged] == [0.1, 0.3]
    assert own_plan(staged, 0.3).stage(1) == staged.stage(1)
    assert own_plan(staged, 0.05).staged == ()
    with pytest.raises(PlanError, match="without privacy"):
        own_plan(fw.plan(small_schema, float("inf")), 1.0)
