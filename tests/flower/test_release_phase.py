"""The release phase: what a node answers, what it refuses, and that nothing is released twice."""

from __future__ import annotations

import logging
import sqlite3
import threading

import polars as pl
import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

import fedwise as fw
from conftest import make_people
from fedwise.errors import FedwiseError
from fedwise.flower import InProcessGrid, Policy, guard_mod, release_app, release_mod, wire
from fedwise.owner.policy import Refusal
from fedwise.owner.release import Release
from fedwise.owner.replies import records
from flower.kit import make_grid, make_node

SECRET = "secretvalue12345"


@pytest.fixture
def plan(small_schema):
    return fw.plan(small_schema, epsilon=1.0)


def ask(grid, plan_bytes, node=1001):
    """The node's answer to raw plan bytes."""
    message = Message(wire.request(plan_bytes), node, wire.MESSAGE_TYPE)
    (reply,) = grid.send_and_receive([message])
    return wire.read_answer(reply)


def test_a_node_releases_through_its_ledger(tmp_path, plan):
    grid = make_grid(tmp_path, ["ash"])
    made = Release.decode(ask(grid, plan.encode()))
    assert (made.client, made.label, made.plan_digest) == ("ash", "private", plan.digest)
    (charge,) = fw.Ledger(tmp_path / "ash/budget.db").history()
    assert (charge.client, charge.plan, charge.epsilon) == ("ash", plan.digest, 1.0)


def test_the_same_plan_gets_the_same_release_and_is_charged_once(tmp_path, plan):
    grid = make_grid(tmp_path, ["ash"])
    before = ask(grid, plan.encode())
    # A restart: a new process knows nothing but the files.
    again = InProcessGrid(release_app(), [grid.contexts[1001].node_config])
    assert ask(again, plan.encode()) == before
    assert len(fw.Ledger(tmp_path / "ash/budget.db").history()) == 1


def test_two_messages_at_once_are_one_release(tmp_path, plan):
    config = make_node(tmp_path, "ash", budget_epsilon=3.0)
    answers = []
    grids = [InProcessGrid(release_app(), [config]) for _ in range(4)]
    threads = [threading.Thread(target=lambda g=g: answers.append(ask(g, plan.encode()))) for g in grids]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 4
    assert len(set(answers)) == 1
    assert len(fw.Ledger(tmp_path / "ash/budget.db").history()) == 1


def test_a_second_plan_beyond_the_budget_is_declined(tmp_path, plan, small_schema):
    grid = make_grid(tmp_path, ["ash"])
    assert isinstance(ask(grid, plan.encode()), bytes)
    other = fw.plan(small_schema, epsilon=0.5)
    assert ask(grid, other.encode()) is Refusal.BUDGET
    assert len(fw.Ledger(tmp_path / "ash/budget.db").history()) == 1


def other_domain(small_schema):
    """A plan whose schema says stop for a domain of the coordinator's choice: a question about one value."""
    text = small_schema.to_toml().replace('["farm", "shop", "office"]', '["farm"]')
    return fw.plan(fw.Schema.parse(text), epsilon=0.1)


@pytest.mark.parametrize(
    ("policy", "make", "refusal"),
    [
        ({"max_epsilon": 0.5}, lambda s: fw.plan(s, epsilon=1.0), Refusal.EPSILON),
        ({}, lambda s: fw.plan(s, epsilon=float("inf")), Refusal.EPSILON),
        ({}, lambda s: fw.plan(s, epsilon=1.0, delta=1e-4), Refusal.DELTA),
        ({}, other_domain, Refusal.SCHEMA),
        ({"columns": ["AGE", "JOB", "SEX"]}, lambda s: fw.plan(s, epsilon=1.0), Refusal.COLUMNS),
        ({"schema": "nowhere.toml"}, lambda s: fw.plan(s, epsilon=1.0), Refusal.POLICY),
        ({"data": "nowhere.parquet"}, lambda s: fw.plan(s, epsilon=1.0), Refusal.FAILED),
    ],
)
def test_a_plan_beyond_the_policy_is_declined_and_not_charged(tmp_path, small_schema, policy, make, refusal):
    grid = make_grid(tmp_path, ["ash"], **policy)
    assert ask(grid, make(small_schema).encode()) is refusal
    book = tmp_path / "ash/budget.db"
    assert not book.exists() or fw.Ledger(book).history() == []


def test_a_plan_on_part_of_the_agreed_schema_is_answered(tmp_path, small_schema):
    part = fw.Schema(columns=small_schema.columns[1:], name="part")
    grid = make_grid(tmp_path, ["ash"], columns=["JOB", "SEX", "INCOME"])
    assert isinstance(ask(grid, fw.plan(part, epsilon=0.5).encode()), bytes)


@pytest.mark.parametrize("damage", [b"", b"{}", b"\x80\x04evil", b"[" * 100_000])
def test_a_damaged_plan_is_declined(tmp_path, damage):
    grid = make_grid(tmp_path, ["ash"])
    assert ask(grid, damage) is Refusal.UNREADABLE


def test_an_edited_plan_is_declined(tmp_path, plan):
    grid = make_grid(tmp_path, ["ash"])
    assert ask(grid, plan.encode().replace(b'"sigma": ', b'"sigma": 0.0')) is Refusal.UNREADABLE


def test_a_damaged_saved_release_is_not_replaced(tmp_path, plan):
    grid = make_grid(tmp_path, ["ash"], budget_epsilon=5.0)
    ask(grid, plan.encode())
    (saved,) = (tmp_path / "ash/budget.db.releases").glob("*.release.json")
    saved.write_text("{}")
    assert ask(grid, plan.encode()) is Refusal.FAILED
    assert len(fw.Ledger(tmp_path / "ash/budget.db").history()) == 1


def test_nothing_leaves_when_the_release_cannot_be_saved(tmp_path, plan, monkeypatch):
    grid = make_grid(tmp_path, ["ash"])
    monkeypatch.setattr(
        "fedwise.owner.archive.Release.save", lambda *_, **__: (_ for _ in ()).throw(OSError("disk"))
    )
    assert ask(grid, plan.encode()) is Refusal.FAILED


def reply_text(grid, message):
    (reply,) = grid.send_and_receive([message])
    return repr(reply) + (str(reply.error) if reply.has_error() else "")


def test_an_exception_of_the_release_carries_no_data(tmp_path, plan, caplog):
    rows = make_people(50).with_columns(pl.lit(SECRET).alias("JOB"))

    def explode(context):
        raise ValueError(f"cannot parse {SECRET}")

    config = make_node(tmp_path, "ash", data=None)
    grid = InProcessGrid(release_app(data=explode), [config])
    message = Message(wire.request(plan.encode()), 1001, wire.MESSAGE_TYPE)
    logger = logging.getLogger("flwr")
    logger.propagate, before = True, logger.propagate
    try:
        text = reply_text(grid, message)
    finally:
        logger.propagate = before
    assert SECRET not in text
    assert SECRET not in caplog.text
    assert "ValueError" in caplog.text
    # A value outside the domain where the schema says stop: the same one word.
    bad = make_node(tmp_path, "birch", frame=rows.with_columns(pl.lit(3).alias("SEX")))
    assert ask(InProcessGrid(release_app(), [bad]), plan.encode()) is Refusal.FAILED


def test_flower_itself_would_leak_and_the_guard_stops_it():
    def boom(message, context):
        raise KeyError(SECRET)

    open_app, guarded = ClientApp(), ClientApp(mods=[guard_mod])
    open_app.train()(boom)
    guarded.train()(boom)
    message = lambda: Message(RecordDict(), 1001, "train")  # noqa: E731
    assert SECRET in reply_text(InProcessGrid(open_app, 1), message())
    text = reply_text(InProcessGrid(guarded, 1), message())
    assert SECRET not in text
    assert "owner's log" in text


def test_the_mod_serves_an_app_with_a_client_fn_and_passes_the_rest_on(tmp_path, plan):
    seen = []

    def inner(message, context):
        seen.append(message.metadata.message_type)
        return Message(RecordDict(), reply_to=message)

    app = ClientApp(mods=[release_mod()])
    app.train()(inner)
    app.query(wire.ACTION)(inner)
    grid = InProcessGrid(app, [make_node(tmp_path, "ash")])
    assert isinstance(ask(grid, plan.encode()), bytes)
    assert not grid.send_and_receive([Message(RecordDict(), 1001, "train")])[0].has_error()
    assert seen == ["train"]


def test_the_coordinator_cannot_point_the_node_at_other_files(tmp_path, plan):
    """run_config comes from the coordinator: it names neither policy nor data."""
    config = make_node(tmp_path, "ash")
    evil = make_node(tmp_path, "evil", max_epsilon=9.0)
    grid = InProcessGrid(
        release_app(), [config], run_config={**evil, "data": str(tmp_path / "evil/rows.parquet")}
    )
    made = Release.decode(ask(grid, plan.encode()))
    assert made.client == "ash"
    assert not (tmp_path / "evil/budget.db").exists()


def test_a_request_of_another_protocol_is_unreadable(tmp_path, plan):
    grid = make_grid(tmp_path, ["ash"])
    content = RecordDict({"fedwise": ConfigRecord({"protocol": 99, "plan": plan.encode()})})
    (reply,) = grid.send_and_receive([Message(content, 1001, wire.MESSAGE_TYPE)])
    assert wire.read_answer(reply) is Refusal.UNREADABLE


def test_simulated_noise_is_seeded_and_marked(tmp_path, plan):
    grid = make_grid(tmp_path, ["ash"], ledger=None, simulated_seed=7)
    first, second = (Release.decode(ask(grid, plan.encode())) for _ in range(2))
    assert first == second
    assert first.label == "simulated"


def test_records_are_estimated_from_the_noisy_tables(small_schema):
    plan = fw.plan(small_schema, epsilon=1.0)
    people = make_people(5000)
    errors = []
    for seed in range(40):
        made = fw.release(plan, people, client="ash", simulated=True, seed=seed)
        errors.append(records(made) - 5000)
    spread = (sum(1 / (t.shape[0] * t.shape[1] * t.sigma**2) for t in plan.tables)) ** -0.5
    # The mean of 40 draws lies within 5 standard errors: a false alarm once in 1.7 million runs.
    assert abs(sum(errors) / 40) < 5 * spread / 40**0.5
    assert max(abs(error) for error in errors) < 6 * spread
    exact = fw.release(fw.plan(small_schema, epsilon=float("inf")), people, client="ash", no_privacy=True)
    assert records(exact) == 5000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('client = "a"\nschema = "s.toml"\nmax_epsilon = 1.0\n', "must name a ledger"),
        ('client = "a"\nschema = "s.toml"\nmax_epsilon = inf\nledger = "l.db"\n', "finite number above 0"),
        ('client = "../a"\nschema = "s.toml"\nmax_epsilon = 1.0\nledger = "l.db"\n', "path separators"),
        ('client = "a"\nmax_epsilon = 1.0\nledger = "l.db"\n', "schema"),
        (
            'client = "a"\nschema = "s.toml"\nmax_epsilon = 1.0\nledger = "l.db"\nmax_epsilonn = 2\n',
            "max_epsilonn",
        ),
        ("client = ", "not valid TOML"),
        (
            'client = "a"\nschema = "s.toml"\nmax_epsilon = 1.0\nledger = "l.db"\ntrain_epsilon = 2.0\n',
            "together",
        ),
    ],
)
def test_wrong_policies_are_named(tmp_path, text, message):
    (tmp_path / "policy.toml").write_text(text)
    with pytest.raises(FedwiseError, match=message):
        Policy.load(tmp_path / "policy.toml")


def test_a_missing_policy_says_what_to_do(tmp_path):
    with pytest.raises(FedwiseError, match="does not exist; write one"):
        Policy.load(tmp_path / "policy.toml")


def test_the_lock_does_not_outlive_a_crash(tmp_path, plan):
    grid = make_grid(tmp_path, ["ash"])
    home = tmp_path / "ash/budget.db.releases"
    home.mkdir()
    db = sqlite3.connect(home / "lock.db", isolation_level=None)
    db.execute("BEGIN EXCLUSIVE")
    db.close()  # what a killed process leaves
    assert isinstance(ask(grid, plan.encode()), bytes)
