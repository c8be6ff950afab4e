"""Replies: what a node sends back to a request, under the owner's policy. Bytes in, bytes out, for every engine."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..errors import BudgetExceeded, FedwiseError, PlanError
from ..planning import Plan
from ..schema.frame import FrameLike
from . import envelope
from .answer import answer
from .archive import Archive
from .policy import Declined, Policy, Refusal
from .question import Question
from .release import Release, release
from .score import Score


class Reply(NamedTuple):
    """The bytes that leave, the release in them, and the policy it was made under; None for a refusal."""

    content: bytes
    release: Release | None
    policy: Policy | None = None


def reply_to(
    request: bytes | None,
    policy: Callable[[Plan], Policy],
    data: Callable[[Policy], FrameLike],
    *,
    log: logging.Logger | None = None,
) -> Reply:
    """Answer a request: a release, or a refusal from a fixed list. Nothing is raised, and no text of an error leaves.

    Parameters
    ----------
    request
        What the coordinator sent.
    policy
        The owner's terms for a plan; raises `Declined` where there are none.
    data
        The rows under a policy. Called only if the plan is allowed and was not answered before.
    log
        Where the owner reads what happened. Default: the logger ``fedwise``.
    """
    log = log or logging.getLogger("fedwise")
    terms: list[Policy] = []

    def remember(plan: Plan) -> Policy:
        terms.append(policy(plan))
        return terms[-1]

    try:
        stage, score = envelope.read_stage(request or b"")
        made = _answer(envelope.read_request(request or b""), remember, data, log, stage, score)
        return Reply(envelope.released(made.encode(), data_version=terms[-1].data_version), made, terms[-1])
    except Declined as refused:
        log.warning("fedwise: declined a plan: %s", refused.refusal.sentence)
        refusal, told = refused.refusal, refused.client
    except Exception as cause:
        log.error("fedwise: no release was made: %s", describe(cause))
        refusal, told = Refusal.FAILED, ""
    if terms and terms[-1].name_refusals:
        told = terms[-1].client
    return Reply(envelope.declined(refusal, client=told), None)


def _answer(
    request: bytes | None,
    find: Callable[[Plan], Policy],
    data: Callable[[Policy], FrameLike],
    log: logging.Logger,
    stage: int,
    score: Score | None,
) -> Release:
    """Check the plan against the policy, and answer it as `fedwise release` does."""
    try:
        plan = Plan.decode(request or b"")
    except PlanError:
        raise Declined(Refusal.UNREADABLE) from None
    try:
        policy = find(plan)
        policy.check(plan, stage=stage)
    except Declined:
        raise
    except FedwiseError as cause:
        log.error("fedwise: the policy cannot be used: %s", cause)
        raise Declined(Refusal.POLICY) from None
    own = policy.own_epsilon(plan, stage=stage)
    if policy.ledger is None:
        frame = data(policy)
        return release(
            plan,
            frame,
            client=policy.client,
            simulated=True,
            seed=policy.simulated_seed,
            data_version=policy.data_version,
            stage=stage,
            score=score,
            epsilon=own,
        )
    if stage > 1 or own is not None:
        log.info("fedwise: %s", Question.of(plan, stage=stage, epsilon=own, score=score).sentence)
    try:
        made = answer(
            plan,
            lambda: data(policy),
            client=policy.client,
            ledger=policy.open_ledger,
            archive=Archive(policy.ledger),
            data_version=policy.data_version,
            stage=stage,
            score=score,
            epsilon=own,
        )
    except BudgetExceeded as cause:
        log.warning("fedwise: %s", cause)
        raise Declined(Refusal.BUDGET) from None
    found = made.release
    if made.repeated:
        log.info("fedwise: this plan was answered before; the kept release is sent again, nothing is charged")
    else:
        log.info("fedwise: released %d noisy tables at epsilon %s", len(found.tables), found.epsilon)
    return found


def records(made: Release) -> float:
    """Number of records as the noisy tables of a release tell it: no exact count, so it may travel. A score has none.

    Table j sums to n plus noise of variance cells_j·σ_j²; the inverse-variance mean of all tables, at
    least 1. Exact for a plan without privacy.
    """
    sums = np.array([sum(table.counts) for table in made.tables], dtype=np.float64)
    if not made.private:
        return max(float(sums[0]), 1.0)
    precision = np.array([1 / (len(table.counts) * table.sigma**2) for table in made.tables])
    return max(float(precision @ sums / precision.sum()), 1.0)


def describe(cause: Exception) -> str:
    """fedwise's own errors hold no data; of any other exception only the type is told."""
    return f"{type(cause).__name__}: {cause}" if isinstance(cause, FedwiseError) else type(cause).__name__
