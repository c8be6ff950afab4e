"""The in-process Grid: nodes with a policy of their own answer plans at the same time, and nothing else changes."""

from __future__ import annotations

import threading
import time

import pytest
from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp

import fedwise as fw
from conftest import make_people
from fedwise.flower import InProcessGrid, inprocess, release_app, wire
from fedwise.owner.release import Release
from flower.kit import make_node, make_nodes

NAMES = ("ash", "birch", "cedar", "elm", "fir", "gum")


@pytest.fixture
def plan(small_schema):
    return fw.plan(small_schema, epsilon=1.0)


@pytest.fixture(autouse=True)
def four_cores(monkeypatch):
    monkeypatch.setattr(inprocess, "cores", lambda: 4)


class Counted:
    """A source of rows that notes the threads it ran on, and how many were in it at once."""

    def __init__(self):
        self.now, self.most, self.threads, self.clients = 0, 0, set(), []

    def __call__(self, context):
        self.now += 1
        self.most = max(self.most, self.now)
        self.threads.add(threading.get_ident())
        self.clients.append(context.node_id)
        time.sleep(0.02)
        self.now -= 1
        return make_people(100, seed=context.node_id)


def ask_all(grid, plan):
    messages = [Message(wire.request(plan.encode()), node, wire.MESSAGE_TYPE) for node in grid.get_node_ids()]
    return messages, list(grid.send_and_receive(messages))


def test_nodes_answer_in_threads_and_replies_keep_the_order_of_the_messages(tmp_path, plan, monkeypatch):
    seen = set()
    handle = InProcessGrid._handle
    monkeypatch.setattr(
        InProcessGrid,
        "_handle",
        lambda self, message: seen.add(threading.get_ident()) or time.sleep(0.02) or handle(self, message),
    )
    grid = InProcessGrid(release_app(), make_nodes(tmp_path, NAMES))
    messages, replies = ask_all(grid, plan)
    assert len(seen) > 1
    assert [reply.metadata.reply_to_message_id for reply in replies] == [
        message.metadata.message_id for message in messages
    ]
    assert [Release.decode(wire.read_answer(reply)).client for reply in replies] == list(NAMES)
    for name in NAMES:
        assert len(fw.Ledger(tmp_path / name / "budget.db").history()) == 1


def test_rows_come_from_the_app_for_one_node_at_a_time(tmp_path, plan):
    data = Counted()
    configs = [make_node(tmp_path, name, data=None) for name in NAMES]
    grid = InProcessGrid(release_app(data=data), configs)
    _, replies = ask_all(grid, plan)
    assert all(isinstance(wire.read_answer(reply), bytes) for reply in replies)
    assert (data.most, len(data.clients)) == (1, len(NAMES))


def test_nodes_of_one_policy_answer_one_after_the_other(tmp_path, plan):
    config = make_node(tmp_path, "ash")
    grid = InProcessGrid(release_app(), [config] * 4)
    _, replies = ask_all(grid, plan)
    assert len({wire.read_answer(reply) for reply in replies}) == 1
    assert len(fw.Ledger(tmp_path / "ash" / "budget.db").history()) == 1
    assert len(grid._queues([inprocess._Sent("1", message) for message in ask_all(grid, plan)[0]])) == 1


def test_an_error_of_one_node_stays_its_own(tmp_path, plan):
    configs = make_nodes(tmp_path, NAMES)
    (tmp_path / "cedar" / "policy.toml").write_text("client = 3")
    grid = InProcessGrid(release_app(), configs)
    grid.silent = {1002}
    _, replies = ask_all(grid, plan)
    answered = [wire.read_answer(reply) for reply in replies]
    assert [isinstance(answer, bytes) for answer in answered] == [True, False, True, True, True]
    assert not (tmp_path / "birch" / "budget.db").exists()


def test_training_stays_on_the_callers_thread(tmp_path):
    app, threads = ClientApp(), []

    @app.train()
    def train(message, context):
        threads.append(threading.get_ident())
        return Message(RecordDict(), reply_to=message)

    grid = InProcessGrid(app, [{"policy": f"{place}.toml"} for place in range(5)])
    list(grid.send_and_receive([Message(RecordDict(), node, "train") for node in grid.get_node_ids()]))
    assert threads == [threading.get_ident()] * 5
