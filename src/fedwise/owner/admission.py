"""Admission: whether the owner's policy allows a message at all, asked before anything looks at rows.

| message | no noise declared | `train_epsilon` | `secure_aggregation` |
|---|---|---|---|
| release | the plan is checked by itself | the same | the same |
| training | counted, `train_rounds` at most if set | fedwise's DP-SGD only, charged | masked only |
| evaluation, losses | counted, `evaluations` at most if set | refused | masked or refused |
| anything else | only if named in `messages` | refused | only if named in `messages` |
"""

from __future__ import annotations

import enum

from ..errors import BudgetExceeded
from .policy import Declined, Policy, Refusal


class Asked(enum.StrEnum):
    """What a message wants."""

    RELEASE = "release"
    TRAINING = "training"
    METRICS = "metrics"
    OTHER = "other"


def admit(policy: Policy, asked: Asked, *, name: str, private: bool = False, masked: bool = False) -> None:
    """Let a message pass, or raise `Declined`. Looks at no row.

    Parameters
    ----------
    name
        Type of the message as the engine spells it.
    private
        The handler is fedwise's DP-SGD, which charges the ledger itself.
    masked
        The message belongs to secure aggregation, whose own checks follow.
    """
    if asked is Asked.RELEASE:
        return
    if asked is Asked.OTHER:
        if name not in policy.messages:
            raise Declined(Refusal.MESSAGE)
        return
    if policy.secure_aggregation and not masked:
        raise Declined(Refusal.SECURE)
    if policy.train_epsilon is not None:
        if asked is Asked.METRICS:
            raise Declined(Refusal.EXACT)
        if not private:
            raise Declined(Refusal.HANDLER)
        return
    _count(policy, asked)


def _count(policy: Policy, asked: Asked) -> None:
    """Write an answer without noise into the ledger before it is made."""
    if policy.ledger is None:
        return
    ledger = policy.open_ledger()
    training = asked is Asked.TRAINING
    limit = (policy.train_rounds or None) if training else policy.evaluations
    try:
        ledger.count_open("open round" if training else "evaluation", client=policy.client, limit=limit)
    except BudgetExceeded:
        raise Declined(Refusal.BUDGET) from None
