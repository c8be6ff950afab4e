"""Mistakes in an owner's policy: each is refused when the policy is read, in a sentence that names the field."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from fedwise.errors import FedwiseError, LedgerError
from fedwise.owner.policy import Policy

FIELDS = {"client": "ash", "schema": Path("s.toml"), "max_epsilon": 1.0, "ledger": Path("l.db")}
PRIVATE = {"train_epsilon": 4.0, "train_rounds": 9}


def test_the_fields_here_make_a_policy() -> None:
    assert Policy(**FIELDS, **PRIVATE).train_rounds == 9  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_epsilon": 0.0}, "max_epsilon must be a finite number above 0, got 0.0"),
        ({"max_epsilon": math.nan}, "max_epsilon must be a finite number above 0, got nan"),
        ({"max_epsilon": math.inf}, "max_epsilon must be a finite number above 0, got inf"),
        ({"max_delta": 1.0}, "max_delta must be between 0 and 1, got 1.0"),
        ({"ledger": None}, "must name a ledger"),
        ({"simulated_seed": 1}, "must name a ledger"),
        ({"train_epsilon": 4.0}, "train_epsilon and train_rounds together"),
        ({"train_rounds": -1}, "train_rounds and evaluations must be at least 0"),
        ({"evaluations": -1}, "train_rounds and evaluations must be at least 0"),
        ({**PRIVATE, "train_epsilon": math.inf}, "train_epsilon must be finite"),
        ({**PRIVATE, "train_epsilon": -1.0}, "epsilon"),
        ({**PRIVATE, "train_delta": 0.0}, "delta"),
        ({**PRIVATE, "messages": ("query.version",)}, "must not name other messages beside train_epsilon"),
        ({**PRIVATE, "train_clip": 0.0}, "train_clip must be a finite number above 0, got 0.0"),
        ({**PRIVATE, "train_clip": math.inf}, "train_clip must be a finite number above 0, got inf"),
        ({**PRIVATE, "train_population": 0}, "train_population must be at least 1, got 0"),
        ({"least_cohort": 1}, "least_cohort must be at least 2, got 1"),
    ],
    ids=str,
)
def test_policies_that_promise_nothing_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(FedwiseError, match=message):
        Policy(**{**FIELDS, **changes})  # type: ignore[arg-type]


def test_a_policy_for_simulations_has_no_ledger() -> None:
    policy = Policy(**{**FIELDS, "ledger": None, "simulated_seed": 1})  # type: ignore[arg-type]
    with pytest.raises(LedgerError, match="must name a ledger; it is one for simulations"):
        policy.open_ledger()
