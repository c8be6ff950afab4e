"""Who spent what, in the sentences of report and explorer."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import fedwise as fw
from conftest import make_people
from fedwise.view.pool_rows import pool_rows
from fedwise.view.promise import promise_of
from fedwise.view.spending import spending_sentences, spent_by_client


def test_spending_is_told_stage_by_stage(small_schema: fw.Schema, tmp_path: Path) -> None:
    plan = fw.plan(small_schema, 2.0, stages=[0.3, 2.0])

    def release(name: str, **options: float) -> fw.Release:
        return fw.release(plan, make_people(900, ord(name)), client=name, simulated=True, seed=1, **options)  # type: ignore[arg-type]

    first = [release(name) for name in "abcd"]
    shortlist = fw.shortlist(fw.Pool.of(first), 2, size=2, redraws=10)
    again = [release(name, stage=2) for name in shortlist.clients]
    for one in [*first, *again]:
        one.save(tmp_path / f"{one.client}.stage{one.number}.release.json")
    shortlist.save(tmp_path / "shortlist.json")
    pool = fw.Pool.load(tmp_path)
    assert pool.shortlist == shortlist
    said = spending_sentences(pool)
    assert said[0] == f"2 clients spent epsilon 0.3 in all, after stage 1: {', '.join(shortlist.out)}." or (
        set(shortlist.out) == set(said[0].split(": ")[1].rstrip(".").split(", "))
    )
    assert said[1].startswith("2 clients spent epsilon 2 in all, after stage 2: ")
    assert said[2] == "On average a client spent epsilon 1.15."
    assert "Expected loss above the best" in said[3]
    assert set(said) <= set(promise_of(pool).left)
    rows = {row.client: row for row in pool_rows(pool, fw.estimate(pool), np.zeros((4, 4)))}
    for name in "abcd":
        asked = name in shortlist.clients
        assert rows[name].spent == (2.0 if asked else 0.3)
        assert rows[name].stages == (
            "stage 1: epsilon 0.3; stage 2: epsilon 2" if asked else "stage 1: epsilon 0.3"
        )
    assert spending_sentences(fw.Pool.of(first))[-1] == "On average a client spent epsilon 0.3."


def test_one_release_each_needs_no_sentence(small_schema: fw.Schema) -> None:
    plan = fw.plan(small_schema)
    pool = fw.Pool.of([fw.release(plan, make_people(99), client="a", simulated=True, seed=0)])
    assert spending_sentences(pool) == []
    assert pool_rows(pool, fw.estimate(pool), np.zeros((1, 4)))[0].spent is None
    own = fw.release(plan, make_people(99, 1), client="b", simulated=True, seed=0, epsilon=0.4)
    mixed = fw.Pool.of([own, fw.release(plan, make_people(99), client="a", simulated=True, seed=0)])
    assert spent_by_client(mixed) == {"a": (1.0, "epsilon 1"), "b": (0.4, "epsilon 0.4, 1 was asked")}
    said = spending_sentences(mixed)
    assert said[-1] == "Allowed less than they were asked, and answered with more noise: b."
