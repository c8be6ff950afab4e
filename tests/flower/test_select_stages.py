"""select_federation in stages: a second question for the shortlist, none for the others."""

from __future__ import annotations

import numpy as np
import pytest

import fedwise as fw
from conftest import make_people
from fedwise.coordinator.answers import sort_answers
from fedwise.errors import FedwiseError
from fedwise.flower import InProcessGrid, release_app, select_federation
from fedwise.owner import envelope
from fedwise.owner.policy import Refusal
from fedwise.owner.replies import reply_to
from fedwise.owner.score import Points, Score
from fedwise.owner.simulated import simulated_policy
from fedwise.pool.pool import Pool
from flower.kit import NAMES, SpyGrid, first, make_grid, make_node

OPTIONS = {"k": 2, "select": first, "timeout": 20.0, "poll": 0.05, "stages": [0.1, 1.0]}


def test_only_the_shortlist_is_asked_again(tmp_path, small_schema):
    spy = SpyGrid(make_grid(tmp_path))
    federation = select_federation(
        spy, small_schema, shortlist={"size": 2, "redraws": 10}, save=tmp_path / "releases", **OPTIONS
    )
    assert len(spy.sent) == len(NAMES) + 2
    epsilons = dict(zip(federation.pool.clients, federation.pool.epsilons.tolist(), strict=True))
    assert sorted(epsilons.values()) == [0.1, 0.1, 0.1, 1.0, 1.0]
    asked = {name for name, epsilon in epsilons.items() if epsilon == 1.0}
    for name in NAMES:
        charges = fw.Ledger(tmp_path / name / "budget.db").history()
        assert len(charges) == (2 if name in asked else 1)
    loaded = Pool.load(tmp_path / "releases")
    assert loaded.epsilons.tolist() == federation.pool.epsilons.tolist()
    assert (loaded.matrix == federation.pool.matrix).all()


def test_a_stage_in_waves_asks_each_node_once(tmp_path, small_schema):
    spy = SpyGrid(make_grid(tmp_path))
    federation = select_federation(
        spy,
        small_schema,
        shortlist={"size": 4, "waves": 2, "redraws": 10},
        save=tmp_path / "releases",
        **OPTIONS,
    )
    assert len(spy.sent) == len(NAMES) + 4
    assert sorted(federation.pool.epsilons.tolist()) == [0.1] * (len(NAMES) - 4) + [1.0] * 4
    assert sum(len(fw.Ledger(tmp_path / name / "budget.db").history()) for name in NAMES) == len(NAMES) + 4
    kept = Pool.load(tmp_path / "releases").shortlist
    assert kept is not None
    assert kept.complete
    assert kept.wave.number == kept.wave.of == 2


def test_a_node_that_refuses_the_second_stage_keeps_its_first(tmp_path, small_schema):
    grid = make_grid(tmp_path)
    for name in NAMES:
        path = next((tmp_path / name).glob("*.toml"))
        text = path.read_text()
        assert "max_epsilon" in text
        lines = ["max_epsilon = 0.5" if "max_epsilon" in line else line for line in text.splitlines()]
        path.write_text("\n".join(lines) + "\n")
    federation = select_federation(grid, small_schema, shortlist={"size": 2, "redraws": 10}, **OPTIONS)
    assert federation.pool.epsilons.tolist() == [0.1] * len(NAMES)
    for name in NAMES:
        assert len(fw.Ledger(tmp_path / name / "budget.db").history()) == 1


def test_stages_belong_to_the_plan(tmp_path, small_schema):
    with pytest.raises(FedwiseError, match="stages must not be given beside a plan"):
        select_federation(make_grid(tmp_path), fw.plan(small_schema), **OPTIONS)


def test_a_request_names_its_stage(small_schema):
    plan = fw.plan(small_schema).encode()
    assert envelope.read_stage(envelope.request(plan)) == (1, None)
    assert envelope.read_stage(envelope.request(plan, stage=2)) == (2, None)
    assert b"stage" not in envelope.request(plan).replace(plan, b"")
    assert envelope.read_stage(b"nothing") == (1, None)


def test_a_node_that_may_answers_with_its_own_smaller_epsilon(tmp_path, small_schema):
    configs = [make_node(tmp_path, name, seed=i) for i, name in enumerate(("ash", "birch"))]
    configs.append(make_node(tmp_path, "cedar", seed=3, max_epsilon=0.3, answer_less=True))
    configs.append(make_node(tmp_path, "date", seed=4, max_epsilon=0.3))
    federation = select_federation(
        InProcessGrid(release_app(), configs), fw.plan(small_schema), k=2, select=first, timeout=20.0, poll=0.05,
        save=tmp_path / "releases",
    )  # fmt: skip
    assert federation.pool.clients == ("ash", "birch", "cedar")
    assert federation.pool.epsilons.tolist() == [1.0, 1.0, 0.3]
    assert [absence.reason for absence in federation.absent] == [Refusal.EPSILON.sentence]
    (charge,) = fw.Ledger(tmp_path / "cedar" / "budget.db").history()
    assert charge.epsilon == 0.3
    (part,) = federation.pool.spendings[2].parts
    assert (part.epsilon, part.asked) == (0.3, 1.0)
    assert Pool.load(tmp_path / "releases").epsilons.tolist() == [1.0, 1.0, 0.3]


def test_a_second_stage_ends_at_what_the_owner_allows(tmp_path, small_schema):
    grid = make_grid(tmp_path, max_epsilon=0.5, answer_less=True)
    federation = select_federation(grid, small_schema, shortlist={"size": 2, "redraws": 10}, **OPTIONS)
    assert sorted(federation.pool.epsilons.tolist()) == [0.1, 0.1, 0.1, 0.5, 0.5]
    for name, epsilon in zip(federation.pool.clients, federation.pool.epsilons, strict=True):
        spent = fw.Ledger(tmp_path / name / "budget.db").balance().spent
        assert spent <= epsilon * (1 + 1e-9)


def test_a_release_under_a_smaller_promise_must_answer_the_plan_asked(small_schema):
    asked, other = fw.plan(small_schema), fw.plan(small_schema, epsilon=2.0)
    rows = make_people(300)
    own = fw.release(asked, rows, client="ash", simulated=True, seed=1, epsilon=0.3)
    found = sort_answers([1], {1: envelope.released(own.encode())}, asked)
    assert list(found.releases) == [1]
    found = sort_answers([1], {1: envelope.released(own.encode())}, other)
    assert [absence.reason for absence in found.absent] == ["its release answers another plan"]


def test_a_score_by_messages(tmp_path, small_schema):
    """Some answer the tables again, the others a score by these, then the rest of the list the tables."""
    spy = SpyGrid(make_grid(tmp_path))
    options = OPTIONS | {"stages": [0.05, 0.1, 1.0], "score": True}
    federation = select_federation(
        spy,
        small_schema,
        shortlist={"size": 3, "redraws": 10, "waves": 2},
        save=tmp_path / "releases",
        **options,
    )
    # Two answer the tables again ahead of the score, which three answer; one more answers the tables.
    assert len(spy.sent) == len(NAMES) + 2 + 3 + 1
    assert sorted(federation.pool.epsilons.tolist()) == [0.1, 0.1, 1.0, 1.0, 1.0]
    assert federation.pool.scores is not None
    loaded = Pool.load(tmp_path / "releases")
    assert loaded.epsilons.tolist() == federation.pool.epsilons.tolist()
    np.testing.assert_array_equal(loaded.scores.sums, federation.pool.scores.sums)
    for name, epsilon in zip(federation.pool.clients, federation.pool.epsilons, strict=True):
        spent = fw.Ledger(tmp_path / name / "budget.db").balance().spent
        assert spent == pytest.approx(epsilon, rel=1e-3)
    assert set(federation.sizes) == set(federation.members)


def test_a_node_says_no_to_another_score(small_schema):
    """A score that does not fit the plan is an error on the node; an answer to another score is not used."""
    plan = fw.plan(small_schema, stages=[0.05, 0.1, 1.0], score=True)
    cells = plan.tables[0].shape[0] * plan.tables[0].shape[1]
    asked, other = (
        Score(low=-1, high=1, points=(Points(plan.tables[0].pair, (n,) * cells),)) for n in (1, 2)
    )
    rows = make_people(300)
    own = fw.release(plan, rows, client="ash", simulated=True, seed=1, stage=2, score=other)
    (absence,) = sort_answers([1], {1: envelope.released(own.encode())}, plan, stage=2, score=asked).absent
    assert absence.reason == "its release answers another score"
    found = sort_answers([1], {1: envelope.released(own.encode())}, plan, stage=2, score=other)
    assert list(found.releases) == [1]
    request = envelope.request(plan.encode(), stage=2, score=asked)
    assert envelope.read_stage(request) == (2, asked)
    bad = envelope.request(plan.encode(), stage=2, score=Score(low=1, high=0, points=()))
    policy = simulated_policy("ash", small_schema)
    for content in (envelope.request(plan.encode(), stage=2), bad):
        made = reply_to(content, lambda _: policy, lambda _: rows)
        assert made.release is None
        assert envelope.read_answer(made.content).refusal is Refusal.FAILED
