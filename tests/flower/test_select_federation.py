"""select_federation: who is asked, who is left out and why, and the Grid that comes out."""

from __future__ import annotations

import threading
import time

import msgspec
import pytest
from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.clientapp import ClientApp

import fedwise as fw
from fedwise.errors import CheckFailed, FedwiseError, PoolError
from fedwise.flower import FederationGrid, InProcessGrid, release_app, select_federation, wire
from fedwise.flower.grid import GridView
from fedwise.owner.release import Release
from fedwise.pool.pool import Pool
from flower.kit import NAMES, SpyGrid, first, make_grid, make_node, make_nodes


@pytest.fixture
def plan(small_schema):
    return fw.plan(small_schema, epsilon=1.0)


def choose(grid, plan, **options):
    return select_federation(grid, plan, **{"k": 2, "select": first, "timeout": 0.4, "poll": 0.05, **options})


def tampering(change):
    """An app whose answers are changed on the way by `change(client, release) -> content`."""
    inner = release_app()

    def mod(message, context, call_next):
        reply = call_next(message, context)
        made = Release.decode(wire.read_answer(reply))
        content = change(made)
        return reply if content is None else Message(content, reply_to=message)

    app = ClientApp(mods=[mod])
    app.query(wire.ACTION)(lambda message, context: inner(message, context))
    return app


def resend(made, **changes):
    return wire.released(msgspec.structs.replace(made, **changes).encode())


def test_it_unpacks_as_selection_and_grid(tmp_path, plan):
    grid = make_grid(tmp_path)
    federation = choose(grid, plan)
    selection, limited = federation
    assert selection.clients == ("ash", "birch")
    assert list(limited.get_node_ids()) == [1001, 1002]
    assert [node.node_id for node in limited.get_nodes()] == [1001, 1002]
    assert federation.nodes == dict(zip(NAMES, range(1001, 1006), strict=True))
    assert federation.absent == ()
    assert set(federation.sizes) == {"ash", "birch"}


def test_the_pool_is_that_of_the_saved_files(tmp_path, plan):
    federation = choose(make_grid(tmp_path), plan, save=tmp_path / "releases")
    loaded = Pool.load(tmp_path / "releases")
    assert loaded.clients == federation.pool.clients
    assert (loaded.matrix == federation.pool.matrix).all()


def test_nobody_outside_hears_anything_after_the_release(tmp_path, plan):
    spy = SpyGrid(make_grid(tmp_path))
    _, limited = choose(spy, plan)
    asked = len(spy.sent)
    assert asked == 5
    with pytest.raises(FedwiseError, match="chosen node"):
        limited.push_messages([Message(RecordDict(), 1005, "train")])
    with pytest.raises(FedwiseError, match="chosen node"):
        limited.send_and_receive([Message(RecordDict(), 1005, "train")])
    assert len(spy.sent) == asked


def test_the_second_run_sends_the_same_releases_and_charges_nothing(tmp_path, plan):
    nodes = make_nodes(tmp_path)
    runs = [choose(InProcessGrid(release_app(), nodes), plan) for _ in range(2)]
    assert (runs[0].pool.matrix == runs[1].pool.matrix).all()
    for name in NAMES:
        assert len(fw.Ledger(tmp_path / name / "budget.db").history()) == 1


def test_silent_and_gone_nodes_are_reported(tmp_path, plan):
    grid = make_grid(tmp_path)
    grid.silent.add(1003)
    grid.offline.add(1004)
    federation = choose(grid, plan)
    assert [(a.node, a.kind) for a in federation.missing] == [(1003, "silent")]
    assert federation.pool.clients == ("ash", "birch", "elm")


def test_a_node_that_leaves_while_asked_is_not_waited_for(tmp_path, plan):
    grid = make_grid(tmp_path)
    grid.silent.add(1003)
    spy = SpyGrid(grid)

    real = grid.get_node_ids

    def leaves():
        if spy.sent:
            grid.offline.add(1003)
        return real()

    grid.get_node_ids = leaves
    federation = choose(spy, plan, timeout=60.0)
    assert [(a.node, a.kind) for a in federation.missing] == [(1003, "silent")]


def test_stragglers_are_given_a_grace_and_no_more(tmp_path, plan):
    grid = make_grid(tmp_path)
    grid.silent.add(1003)
    began = time.monotonic()
    federation = choose(grid, plan, timeout=60.0, grace=0.2)
    assert time.monotonic() - began < 30
    assert [a.node for a in federation.missing] == [1003]


def test_a_node_that_connects_late_is_asked(tmp_path, plan):
    grid = make_grid(tmp_path)
    grid.offline.add(1005)
    calls = []
    real = grid.get_node_ids

    def late():
        calls.append(1)
        if len(calls) == 3:
            grid.offline.clear()
        return real()

    grid.get_node_ids = late
    assert choose(grid, plan, expected=5, timeout=30.0).pool.clients == NAMES


class LosingGrid(GridView):
    """Tells the first `losses` requests to one node that the node is offline, as Flower does after a restart."""

    def __init__(self, grid, node, losses):
        super().__init__(grid)
        self.node, self.losses, self.requests, self._lost = node, losses, 0, {}

    def push_messages(self, messages):
        ids = []
        for message in messages:
            ids += self.grid.push_messages([message])
            if message.metadata.dst_node_id == self.node:
                self.requests += 1
                if self.requests <= self.losses:
                    self._lost[ids[-1]] = Message(Error(code=5), reply_to=message)
        return ids

    def pull_messages(self, message_ids):
        wanted = list(message_ids)
        replies = list(self.grid.pull_messages(wanted))
        kept = [r for r in replies if r.metadata.reply_to_message_id not in self._lost]
        return kept + [self._lost[number] for number in wanted if number in self._lost]


def test_a_restarted_node_whose_request_was_lost_is_asked_again(tmp_path, plan):
    grid = LosingGrid(make_grid(tmp_path), 1005, losses=2)
    federation = choose(grid, plan, timeout=30.0)
    assert federation.pool.clients == NAMES
    assert federation.absent == ()
    assert grid.requests == 3


def test_a_node_that_stays_offline_is_given_up_with_its_reason(tmp_path, plan):
    inner = make_grid(tmp_path)
    grid = LosingGrid(inner, 1005, losses=1000)
    asked = grid.push_messages

    def leaves(messages):
        ids = asked(messages)
        inner.offline.add(1005)
        return ids

    grid.push_messages = leaves
    federation = choose(grid, plan, timeout=60.0, grace=0.1)
    assert [str(a) for a in federation.absent] == ["node 1005 (failed): the node is offline"]
    assert grid.requests == 1


def test_too_few_releases_stop_with_every_reason(tmp_path, plan):
    nodes = make_nodes(tmp_path, NAMES[:3])
    nodes.append(make_node(tmp_path, "fir", max_epsilon=0.1))
    grid = InProcessGrid(release_app(), nodes)
    grid.silent.add(1002)
    with pytest.raises(PoolError, match="at least 4 releases, got 2 from 4 nodes") as caught:
        choose(grid, plan, min_releases=4)
    assert "node 1002 (silent): no answer in time" in str(caught.value)
    assert "node 1004 (declined): the plan asks for a larger epsilon" in str(caught.value)


def test_no_node_at_all_is_a_clear_stop(plan):
    with pytest.raises(PoolError, match="got 0 from 0 nodes"):
        choose(InProcessGrid(release_app(), 0), plan)


def test_min_releases_below_k_and_a_bad_timeout_are_refused(tmp_path, plan):
    with pytest.raises(FedwiseError, match="min_releases must be at least k"):
        choose(make_grid(tmp_path), plan, min_releases=1)
    with pytest.raises(FedwiseError, match="timeout must be above 0"):
        choose(InProcessGrid(release_app(), 0), plan, timeout=0)


def test_another_version_is_left_out(tmp_path, plan):
    def change(made):
        if made.client == "ash":
            return RecordDict({"fedwise": ConfigRecord({"protocol": 2, "novel": b"thing"})})
        if made.client == "birch":
            return wire.released(made.encode().replace(b"fedwise/release/1", b"fedwise/release/2"))
        return None

    federation = choose(InProcessGrid(tampering(change), make_nodes(tmp_path)), plan)
    assert {a.node: a.kind for a in federation.missing} == {1001: "version", 1002: "version"}


def test_a_node_without_fedwise_is_left_out_and_its_text_is_not_repeated(tmp_path, plan):
    plain = ClientApp()

    @plain.train()
    def train(message, context):
        return Message(RecordDict(), reply_to=message)

    nodes = make_nodes(tmp_path)
    grid = InProcessGrid(release_app(), nodes)
    other = InProcessGrid(plain, 1)
    real = grid.app

    def mixed(message, context):
        return other.app(message, context) if context.node_id == 1001 else real(message, context)

    grid.app = mixed
    federation = choose(grid, plan)
    assert [(a.node, a.kind, a.reason) for a in federation.missing] == [
        (1001, "failed", "its app raised an error")
    ]


def test_an_answer_to_another_plan_is_left_out(tmp_path, plan, small_schema):
    other = fw.plan(small_schema, epsilon=0.5)

    def change(made):
        if made.client == "ash":
            answer = fw.release(other, tmp_path / "ash/rows.parquet", client="ash", uncharged=True)
            return wire.released(answer.encode())
        return None

    federation = choose(InProcessGrid(tampering(change), make_nodes(tmp_path)), plan)
    assert [(a.client, a.kind) for a in federation.missing] == [("ash", "invalid")]


def test_a_client_on_two_nodes_counts_once(tmp_path, plan):
    nodes = make_nodes(tmp_path)
    federation = choose(InProcessGrid(release_app(), [*nodes, nodes[0]]), plan)
    assert [(a.node, a.client, a.kind) for a in federation.flagged] == [(1001, "ash", "duplicate")]
    assert federation.nodes["ash"] == 1006


def test_two_different_releases_under_one_name_are_both_left_out(tmp_path, plan):
    def change(made):
        return resend(made, client="ash") if made.client == "birch" else None

    federation = choose(InProcessGrid(tampering(change), make_nodes(tmp_path)), plan)
    assert [(a.node, a.client) for a in federation.flagged] == [(1001, "ash"), (1002, "ash")]
    assert federation.pool.clients == ("cedar", "date", "elm")


def test_a_copied_release_is_left_out(tmp_path, plan):
    kept, there = [], threading.Event()

    def change(made):
        if made.client == "ash":
            kept.append(made)
            there.set()
        if made.client == "birch" and there.wait(30):  # nodes answer at the same time
            return resend(kept[0], client="birch")
        return None

    federation = choose(InProcessGrid(tampering(change), make_nodes(tmp_path)), plan)
    assert [a.client for a in federation.flagged] == ["ash", "birch"]


def contradict(made):
    """One table says there are a million more records than the others."""
    tables = list(made.tables)
    counts = [count + 100_000 for count in tables[0].counts]
    tables[0] = msgspec.structs.replace(tables[0], counts=counts)
    return resend(made, tables=tuple(tables))


def test_a_flagged_release_is_left_out_unless_accepted(tmp_path, plan):
    app = tampering(lambda made: contradict(made) if made.client == "cedar" else None)
    nodes = make_nodes(tmp_path)
    federation = choose(InProcessGrid(app, nodes), plan)
    assert [(a.client, a.kind) for a in federation.flagged] == [("cedar", "flagged")]
    assert "cedar" not in federation.pool.clients
    accepted = choose(InProcessGrid(app, nodes), plan, accept_flagged=True)
    assert "cedar" in accepted.pool.clients


def test_the_limited_grid_gives_up_when_its_nodes_are_gone(tmp_path):
    grid = make_grid(tmp_path)
    limited = FederationGrid(grid, {"ash": 1001, "birch": 1002}, patience=0.0)
    grid.offline.update({1001, 1002})
    limited.get_node_ids()
    with pytest.raises(CheckFailed, match="0 of 2 nodes online"):
        limited.get_node_ids()
    with pytest.raises(FedwiseError, match="at least one node"):
        FederationGrid(grid, {})


def test_replies_come_in_the_order_of_names_and_the_missing_are_kept(tmp_path):
    grid = make_grid(tmp_path, app=ClientApp())
    grid.silent.add(1002)
    limited = FederationGrid(grid, {"zoe": 1001, "bob": 1002, "amy": 1003}, grace=0.0)
    replies = limited.send_and_receive([Message(RecordDict(), node, "train") for node in (1001, 1002, 1003)])
    assert [reply.metadata.src_node_id for reply in replies] == [1003, 1001]
    assert {(m.client, m.reason) for m in limited.missing} == {
        ("amy", "its app raised an error"),
        ("bob", "no answer in time"),
        ("zoe", "its app raised an error"),
    }
