"""Question: what an owner is asked, stage by stage, and what it answers where it allows less."""

from __future__ import annotations

from typing import NamedTuple

from ..errors import PlanError, ReleaseError
from ..planning import Plan
from ..planning import plan as make_plan
from ..privacy.scales import check_promise
from ..schema.frame import FrameLike
from .ledger import Ledger
from .score import Score
from .tables import Tables, count


class Question(NamedTuple):
    """What is answered: the plan asked, the one answered (the owner's own where it allows less), stage and score."""

    asked: Plan
    answered: Plan
    stage: int
    score: Score | None = None

    @classmethod
    def of(
        cls, plan: Plan, *, stage: int = 1, epsilon: float | None = None, score: Score | None = None
    ) -> Question:
        """The question a plan asks at a stage of an owner that allows `epsilon` in all.

        Parameters
        ----------
        score
            What the stage that asks for a score scores by; other stages have none.

        Raises
        ------
        PlanError
            There is no such stage, or the owner's ε leaves nothing to add to the stages before.
        ReleaseError
            A score is missing, does not fit the plan, or is given to a stage that asks for tables.
        """
        wanted = plan.stage(stage)
        if wanted.scored and score is None:
            raise ReleaseError(
                f"stage {stage} of plan {plan.digest[:12]} must come with what it scores by; get the shortlist that "
                "asks for it from the coordinator"
            )
        if score is not None:
            if not wanted.scored:
                raise ReleaseError(
                    f"score must be given for a stage that asks for one, got stage {stage} of plan {plan.digest[:12]}; "
                    "leave it out"
                )
            score.check(plan)
        if epsilon is None or epsilon >= wanted.epsilon:
            return cls(plan, plan, stage, score)
        own = own_plan(plan, epsilon)
        if stage > 1 and epsilon <= plan.stage(stage - 1).epsilon:
            raise PlanError(
                f"epsilon must be above {plan.stage(stage - 1).epsilon:g}, the total after stage {stage - 1}, got "
                f"{epsilon:g}; leave stage {stage} unanswered"
            )
        return cls(plan, own, stage, score)

    def tables(self, frame: FrameLike) -> Tables:
        """Exact counts of what is asked, which stay in memory; `DataError` where the rows do not fit.

        No rows are counted too: a node that refused them would tell the coordinator, without noise, of nobody there.
        """
        plan = self.answered
        return (
            count(plan.schema.encode(frame), plan.layout)
            if self.score is None
            else self.score.count(plan, frame)
        )

    @property
    def total(self) -> float:
        """ε of the promise after this answer, earlier stages included."""
        return self.answered.stage(self.stage).epsilon

    @property
    def sentence(self) -> str:
        """What the owner is asked, in words."""
        said = ""
        if self.asked.staged:
            said = f"Stage {self.stage} of {len(self.asked.staged)}"
            earlier = sorted(self.asked.stage(number).epsilon for number in self.asked.before(self.stage))
            before = " or ".join(f"{total:g}" for total in earlier or [0.0])
            said += f": the total epsilon rises from {before} to {self.total:g}."
            if self.stage > 1:
                said = f"You are asked again. {said}"
            if self.score is not None:
                said += (
                    " Asked is one number: the sum of a score between -1 and 1 for each of your records, by the points "
                    "of the shortlist."
                )
        if self.answered.digest != self.asked.digest:
            asked = self.asked.stage(self.stage).epsilon
            said += (
                f" You allow epsilon {self.total:g} where {asked:g} is asked: your answer carries more noise."
            )
        return said.strip()

    def adds(self, ledger: Ledger, *, client: str) -> float:
        """μ that the answer adds to the ledger: from the total of the stage charged last to that of this one."""
        plan, earlier = self.answered, self.answered.before(self.stage)
        if len(earlier) < 2:
            return plan.charge(self.stage)
        charged = self.charged(ledger, client=client)
        last = next((n for n in earlier if plan.stage(n).epsilon in charged), earlier[0])
        return plan.charge(self.stage, after=last)

    def charged(self, ledger: Ledger, *, client: str) -> set[float]:
        """Total ε of every stage of the plan, asked or answered, that a ledger was charged for."""
        plans = {self.asked.digest, self.answered.digest}
        return {c.epsilon for c in ledger.history() if c.client == client and c.plan in plans}


def check_order(question: Question, ledger: Ledger, *, client: str) -> None:
    """A stage beyond the first adds to the one before, which the same ledger must have been charged for.

    Raises
    ------
    ReleaseError
        The stage before is not in the ledger, or this stage is already, at the ε asked or at another. Nothing is
        charged.
    """
    asked, stage = question.asked, question.stage
    if question.answered.digest != asked.digest:
        _check_first(question, ledger, client=client)
    if not asked.staged:
        return
    charged = question.charged(ledger, client=client)
    if question.answered.stage(stage).epsilon in charged:
        raise ReleaseError(
            f"stage {stage} of plan {asked.digest[:12]} was charged to ledger '{ledger.path}' before, and its "
            "release is not kept here; restore it from where it was sent, a second draw would be charged again"
        )
    later = [total.epsilon for total in asked.staged[stage:] if total.epsilon in charged]
    if later:
        raise ReleaseError(
            f"stage {stage} of plan {asked.digest[:12]} must not follow a later one, and ledger '{ledger.path}' was "
            f"charged for a total of {later[-1]:g}; leave stage {stage} unanswered"
        )
    earlier = asked.before(stage)
    if earlier and not any(asked.stage(number).epsilon in charged for number in earlier):
        raise ReleaseError(
            f"stage {stage} must follow stage {stage - 1}, which ledger '{ledger.path}' was never charged for; "
            f"release stage {stage - 1} of this plan first"
        )


def _check_first(question: Question, ledger: Ledger, *, client: str) -> None:
    """An answer at the owner's own ε must not come after one at the ε asked."""
    asked = question.asked
    wanted = asked.stage(question.stage).epsilon
    if any(c.client == client and c.plan == asked.digest and c.epsilon == wanted for c in ledger.history()):
        raise ReleaseError(
            f"plan {asked.digest[:12]} was answered before at epsilon {wanted:g}, as it asks; an answer at "
            f"{question.total:g} would be charged on top of that, so leave --epsilon out"
        )


def own_plan(asked: Plan, epsilon: float) -> Plan:
    """The plan that an owner answers who allows less than `asked`: the same tables under a smaller promise.

    Stages below `epsilon` stay as they are, and the last ends at it. A plan that asks for no more than `epsilon`
    is returned as it is.

    Raises
    ------
    PlanError
        The promise means nothing, or `asked` has no privacy.
    """
    if not asked.private:
        raise PlanError(
            "epsilon must not be given for a plan without privacy; ask for a plan with a finite epsilon"
        )
    check_promise(epsilon, asked.delta)
    if epsilon >= asked.epsilon:
        return asked
    totals = [stage.epsilon for stage in asked.staged if stage.epsilon < epsilon]
    return make_plan(
        asked.schema,
        epsilon,
        delta=asked.delta,
        weights=asked.weights,
        calibration=asked.calibration,
        allocation=asked.allocation,
        stages=[*totals, epsilon] if totals else None,
        score=asked.scored is not None and bool(totals),
        edition=asked.number,
    )
