"""The selection in the log: what each client spent."""

from __future__ import annotations

import pytest

import fedwise as fw
from conftest import make_people
from fedwise.coordinator.summary import summarise

NAMES = ("ash", "birch", "cedar", "date")


def spent(pool):
    chosen = fw.select(pool, 2, evidence="none")
    (line,) = [text for _, text in summarise(chosen, pool) if text.startswith("spent")]
    return line


@pytest.mark.parametrize(
    ("again", "said"),
    [
        ((), "spent by each of 4 clients: epsilon 0.1 at delta 1e-05; edition 1; simulated"),
        (("ash",), "spent by 4 clients at delta 1e-05: epsilon 0.1 by 3, 1 by 1; edition 1; simulated"),
        (NAMES, "spent by each of 4 clients: epsilon 1 at delta 1e-05; edition 1; simulated"),
    ],
)
def test_clients_that_were_asked_once_did_not_spend_what_the_others_did(small_schema, again, said):
    plan = fw.plan(small_schema, stages=[0.1, 1.0])
    made = [
        fw.release(plan, make_people(400, i), client=name, simulated=True, seed=1, stage=stage)
        for i, name in enumerate(NAMES)
        for stage in (1, 2)[: 1 + (name in again)]
    ]
    assert spent(fw.Pool.of(made, accept_flagged=True)) == said


def test_nothing_is_spent_where_nothing_is_promised(small_schema):
    plan = fw.plan(small_schema, epsilon=float("inf"))
    made = [
        fw.release(plan, make_people(400, i), client=name, no_privacy=True) for i, name in enumerate(NAMES)
    ]
    assert "nothing is promised" in spent(fw.Pool.of(made))
