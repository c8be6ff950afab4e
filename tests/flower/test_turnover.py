"""Federations that change on Flower: a node dies and is replaced, silent nodes are skipped, the report tells."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

import fedwise as fw
from fedwise.errors import FedwiseError
from fedwise.flower import FederationGrid, InProcessGrid, Policy, release_app, select_federation
from flower.kit import SpyGrid, make_grid, make_nodes

NAMES = ("ash", "birch", "cedar", "date", "elm", "fir")
ONES = ArrayRecord({"w": Array(np.ones(2, dtype=np.float32))})


def trainer(value=None):
    """An app of a user's own: adds one to the weights, or sends a value for each partition."""
    app = ClientApp()

    @app.train()
    def train(message, context):
        weights = message.content.array_records["arrays"]["w"].numpy()
        sent = weights + 1 if value is None else np.full(2, value(context), dtype=np.float32)
        content = {
            "arrays": ArrayRecord({"w": Array(np.asarray(sent, dtype=np.float32))}),
            "metrics": MetricRecord({"num-examples": 10, "train_loss": 1.0 / float(weights[0])}),
        }
        return Message(RecordDict(content), reply_to=message)

    return app


class Dying(SpyGrid):
    """Nodes die when the given round of training begins: they are listed, take the message and never answer."""

    def __init__(self, grid, deaths):
        super().__init__(grid)
        self.deaths, self.round = deaths, 0

    def push_messages(self, messages):
        found = list(messages)
        if found and found[0].metadata.message_type == "train":
            self.round += 1
            for name in self.deaths.get(self.round, ()):
                self.grid.silent.add(name)
        return super().push_messages(found)


def start(federation, rounds, **options):
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1, **options)
    return strategy.start(grid=federation.grid, initial_arrays=ONES, num_rounds=rounds, timeout=0.2)


def choose(grid, schema, **options):
    plan = fw.plan(schema, epsilon=1.0)
    return select_federation(
        grid, plan, **{"k": 3, "timeout": 5.0, "poll": 0.01, "evidence": "none", **options}
    )


def test_a_node_that_dies_in_round_3_is_replaced_from_round_4(tmp_path, small_schema):
    spy = Dying(make_grid(tmp_path, NAMES, app=release_app(trainer())), {})
    federation = choose(spy, small_schema, substitutes=1)
    dead = federation.clients[1]
    spy.deaths[3] = [federation.nodes[dead]]
    result = start(federation, 5)
    left, came = federation.changes
    assert (left.kind, left.client, left.round) == ("left", dead, 3)
    assert (came.kind, came.round) == ("came", 3)
    trained = [m.metadata.dst_node_id for m in spy.sent if m.metadata.message_type == "train"]
    assert trained.count(federation.nodes[dead]) == 3
    assert trained.count(federation.nodes[came.client]) == 2
    assert len(set(trained)) == 4
    # Privacy of nobody else is touched: one question each, one charge each.
    asked = [m.metadata.dst_node_id for m in spy.sent if m.metadata.message_type != "train"]
    assert sorted(asked) == sorted(federation.nodes.values())
    for name in NAMES:
        assert len(fw.Ledger(tmp_path / name / "budget.db").history()) == 1
    federation.save(tmp_path / "run", result)
    pytest.importorskip("altair", reason="needs the extra explore")
    page = fw.report(tmp_path / "run", frontier=False, forecast=False).html()
    assert f"{dead} left (no answer in time)" in page
    assert f"{came.client} came (in place of {dead})" in page
    assert "Flower 1." in page
    with pytest.raises(FedwiseError, match="exists"):
        federation.save(tmp_path / "run")


def test_choosing_again_every_two_rounds_takes_in_who_came_later(tmp_path, small_schema):
    inner = make_grid(tmp_path, NAMES, app=release_app(trainer()))
    late = max(inner.contexts)
    inner.offline.add(late)
    federation = choose(inner, small_schema, reselect=2)
    assert "fir" not in federation.nodes
    inner.offline.clear()
    start(federation, 2)
    assert federation.nodes["fir"] == late
    assert "fir" in federation.pool.clients
    assert federation.selection.clients == fw.select(federation.pool, 3, evidence="none").clients


def test_nodes_are_chosen_by_hand_without_any_privacy():
    """The limited Grid on its own: exactly these nodes, their weights, and no waiting for the silent."""
    grid = InProcessGrid(trainer(lambda context: context.node_config["partition-id"]), 5)
    chosen = FederationGrid(grid, {"a": 1001, "b": 1003}, weights={"a": 3.0, "b": 1.0})
    result = FedAvg(fraction_evaluate=0.0).start(grid=chosen, initial_arrays=ONES, num_rounds=1)
    assert result.arrays["w"].numpy() == pytest.approx(0.25 * 2)
    assert list(FederationGrid(grid, [1002, 1005]).get_node_ids()) == [1002, 1005]
    with pytest.raises(FedwiseError, match="weights must name chosen clients, got 'c'"):
        FederationGrid(grid, {"a": 1001}, weights={"c": 1.0})


def test_silent_nodes_are_skipped_until_they_are_back():
    grid = InProcessGrid(trainer(), 3)
    limited = FederationGrid(grid, [1001, 1002, 1003], skip_after=2)
    grid.silent.add(1002)
    for expected in ([1001, 1002, 1003], [1001, 1002, 1003], [1001, 1003], [1001, 1003]):
        nodes = list(limited.get_node_ids())
        assert nodes == expected
        content = RecordDict({"arrays": ONES})
        limited.send_and_receive([Message(content, node, "train") for node in nodes], timeout=0.1)
    grid.offline.add(1002)
    assert list(limited.get_node_ids()) == [1001, 1003]
    grid.offline.clear()
    assert list(limited.get_node_ids()) == [1001, 1002, 1003]


def simulated_app(schema):
    from conftest import make_people

    app = trainer()
    return release_app(
        app, data=lambda context: make_people(400, context.node_config["partition-id"]), schema=schema
    )


def test_a_simulation_needs_no_policy_and_every_partition_is_a_client(small_schema, tmp_path):
    (tmp_path / "schema.toml").write_text(small_schema.to_toml())
    for schema in (small_schema, tmp_path / "schema.toml"):
        federation = choose(InProcessGrid(simulated_app(schema), 12), small_schema)
        assert federation.pool.clients == tuple(f"partition-{i:02}" for i in range(12))
        assert federation.pool.label == "simulated"
        assert all(made.label == "simulated" for made in federation.releases)
        assert start(federation, 1).arrays["w"].numpy() == pytest.approx(2.0)
    again = choose(InProcessGrid(simulated_app(small_schema), 12), small_schema)
    assert (again.pool.matrix == federation.pool.matrix).all()


def test_the_policy_of_simulations_is_no_policy_of_a_deployed_node(
    small_schema, monkeypatch, tmp_path, caplog
):
    """Outside a simulation the same app declines, even with Flower's partition-id in the node's configuration."""
    from contextlib import nullcontext

    monkeypatch.setattr("fedwise.flower.inprocess.in_process", nullcontext)
    monkeypatch.chdir(tmp_path)
    grid = InProcessGrid(simulated_app(small_schema), 3)
    with pytest.raises(FedwiseError, match="no usable policy file"):
        choose(grid, small_schema, timeout=0.1)
    # An owner's own policy goes first, also in a simulation.
    owned = InProcessGrid(simulated_app(small_schema), make_nodes(tmp_path, ("ash", "birch", "cedar")))
    assert choose(owned, small_schema).pool.label == "private"
    with pytest.raises(FedwiseError, match="not both"):
        release_app(policy="policy.toml", schema=small_schema)


def test_a_policy_file_cannot_make_the_policy_of_simulations(tmp_path):
    (tmp_path / "policy.toml").write_text('client = "a"\nschema = "s"\nmax_epsilon = 1.0\ndeclared = "x"\n')
    with pytest.raises(FedwiseError, match="declared"):
        Policy.load(tmp_path / "policy.toml")


def test_a_schema_beside_the_app_is_found(small_schema, tmp_path, monkeypatch):
    from fedwise.flower.places import beside

    (tmp_path / "app").mkdir()
    (tmp_path / "app/schema.toml").write_text(small_schema.to_toml())
    monkeypatch.chdir("/")
    caller = {"__file__": str(tmp_path / "app/server_app.py")}
    assert beside("schema.toml", caller) == tmp_path / "app/schema.toml"
    assert beside("app/schema.toml", caller) == tmp_path / "app/schema.toml"
    assert beside("missing.toml", caller) == tmp_path / "app/missing.toml"
    assert beside(tmp_path / "x.toml", caller) == tmp_path / "x.toml"
