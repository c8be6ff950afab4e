"""Training on the limited Grid: Flower's own strategies, fedwise's, and private updates."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    FedMedian,
    FedProx,
    Krum,
)

import fedwise as fw
from conftest import make_people
from fedwise.errors import FedwiseError
from fedwise.flower import (
    FederationGrid,
    FedwiseStrategy,
    InProcessGrid,
    release_app,
    select_federation,
    train_app,
)
from fedwise.flower.guard import LOSS_ACTION
from fedwise.flower.training import read_update, write_vector
from fedwise.training.encoding import Encoder
from fedwise.training.federation import Prepared
from fedwise.training.local import Instruction, LocalSettings, local_update
from fedwise.training.model import Model
from fedwise.training.samplers import SAMPLERS
from fedwise.training.simulate import Config, simulate
from fedwise.training.strategies import STRATEGIES
from flower.kit import NAMES, SpyGrid, first, make_node, make_nodes

SETTINGS = LocalSettings(lr=0.01, batch=64)


@pytest.fixture
def model(small_schema):
    return Model.named("8", Encoder(small_schema).width)


@pytest.fixture
def build(tmp_path, small_schema, model):
    """A federation of three of the five nodes, under a spy."""

    def make(*, weight="exact", k=3, names=NAMES, **policy):
        app = release_app(policy="unused.toml")
        train_app(
            app, schema=small_schema, policy="unused.toml", model=model, settings=SETTINGS, weight=weight
        )
        spy = SpyGrid(InProcessGrid(app, make_nodes(tmp_path, names, **policy)))
        plan = fw.plan(small_schema, epsilon=1.0)
        return spy, select_federation(spy, plan, k=k, select=first, timeout=30, poll=0.01, grace=0.0)

    return make


def run(strategy, federation, model, *, rounds=2, **options):
    start = write_vector(model, model.initial(0))
    result = strategy.start(
        grid=federation.grid, initial_arrays=start, num_rounds=rounds, timeout=30, **options
    )
    if not result.arrays:  # Flower's way to say that no round succeeded
        return None, result
    return model.flatten({name: array.numpy() for name, array in result.arrays.items()}), result


OWN = [
    FedAvg(fraction_evaluate=1.0),
    FedProx(fraction_evaluate=0.0, proximal_mu=0.5),
    FedAdam(fraction_evaluate=0.0),
    Krum(fraction_evaluate=0.0, num_malicious_nodes=0),
    FedMedian(fraction_evaluate=0.0),
    DifferentialPrivacyServerSideFixedClipping(
        FedAvg(fraction_evaluate=0.0), noise_multiplier=0.01, clipping_norm=5.0, num_sampled_clients=3
    ),
]


@pytest.mark.parametrize("strategy", OWN, ids=lambda s: type(s).__name__)
def test_flowers_own_strategies_run_unchanged(build, model, strategy):
    spy, federation = build()
    asked = len(spy.sent)
    vector, _ = run(strategy, federation, model)
    assert np.isfinite(vector).all()
    assert np.abs(vector - model.initial(0)).max() > 1e-4
    after = spy.sent[asked:]
    assert {message.metadata.dst_node_id for message in after} == {1001, 1002, 1003}
    assert sum(message.metadata.message_type == "train" for message in after) == 6
    for name in NAMES:
        assert len(fw.Ledger(federation_root(federation, name)).history()) == 1


def federation_root(federation, name):
    contexts = federation.grid.grid.grid.contexts
    policy = contexts[federation.nodes[name]].node_config["policy"]
    return policy.replace("policy.toml", "budget.db")


def test_fedavg_is_the_weighted_mean_of_local_updates(build, model, small_schema, tmp_path):
    _, federation = build()
    vector, result = run(FedAvg(fraction_evaluate=1.0), federation, model, rounds=1)
    encoder = Encoder(small_schema)
    parts, rows = [], []
    for name in federation.clients:
        data = encoder.encode(tmp_path / name / "rows.parquet")
        update = local_update(
            model, model.initial(0), data, instruction=Instruction(SETTINGS), client=name, seed=0, round=1
        )
        parts.append(update.parameters)
        rows.append(len(data))
    np.testing.assert_allclose(vector, np.average(parts, axis=0, weights=rows), atol=1e-6)
    assert 0 < result.evaluate_metrics_clientapp[1]["accuracy"] <= 1


def test_fedprox_passes_its_mu_on(build, model):
    _, federation = build()
    free, _ = run(FedProx(fraction_evaluate=0.0, proximal_mu=0.0), federation, model)
    tied, _ = run(FedProx(fraction_evaluate=0.0, proximal_mu=100.0), federation, model)
    start = model.initial(0)
    assert np.abs(tied - start).max() < 0.9 * np.abs(free - start).max()


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_every_strategy_equals_the_simulation(build, model, small_schema, tmp_path, name):
    _, federation = build()
    expected = simulated(small_schema, tmp_path, model, federation, strategy=name)
    sizes = {client: 300.0 + 100 * NAMES.index(client) for client in federation.clients}
    strategy = FedwiseStrategy(name, model=model, sizes=sizes, settings=SETTINGS, fraction_evaluate=0.0)
    vector, _ = run(strategy, federation, model)
    np.testing.assert_allclose(vector, expected, atol=1e-5)


@pytest.mark.parametrize("name", sorted(SAMPLERS))
def test_every_sampler_chooses_as_in_the_simulation(build, model, small_schema, tmp_path, name):
    _, federation = build(k=4)
    expected = simulated(small_schema, tmp_path, model, federation, sampler=name, rounds=3)
    sizes = {client: 300.0 + 100 * NAMES.index(client) for client in federation.clients}
    strategy = FedwiseStrategy(
        model=model, sizes=sizes, sampler=name, settings=SETTINGS, fraction_evaluate=0.0
    )
    vector, _ = run(strategy, federation, model, rounds=3)
    np.testing.assert_allclose(vector, expected, atol=1e-5)
    assert len(strategy.participants) == 3


def simulated(schema, root, model, federation, *, rounds=2, **options):
    clients = {client: pl.read_parquet(root / client / "rows.parquet") for client in federation.clients}
    encoder = Encoder(schema)
    rows = {client: encoder.encode(frame) for client, frame in clients.items()}
    prepared = Prepared(encoder, rows, rows)
    config = Config(rounds=rounds, settings=SETTINGS, evaluate_every=rounds, replicates=0, **options)
    return simulate(prepared, federation.clients, config, model=model).parameters


def test_a_client_lost_in_training_is_named_and_the_run_goes_on(build, model):
    spy, federation = build()
    spy.grid.silent.add(1002)
    sizes = federation.sizes
    strategy = FedwiseStrategy("scaffold", model=model, sizes=sizes, settings=SETTINGS, fraction_evaluate=0.0)
    vector, _ = run(strategy, federation, model)
    assert np.isfinite(vector).all()
    assert [(m.client, m.message_type) for m in federation.grid.missing] == [("birch", "train")] * 2


def test_an_update_that_is_not_finite_is_left_out(build, model, monkeypatch):
    _, federation = build()
    strategy = FedwiseStrategy(model=model, sizes=federation.sizes, settings=SETTINGS, fraction_evaluate=0.0)
    messages = list(
        strategy.configure_train(1, write_vector(model, model.initial(0)), ConfigRecord(), federation.grid)
    )
    replies = list(federation.grid.send_and_receive(messages))
    bad = replies[0].content["arrays"]
    bad[model.names[0]] = type(bad[model.names[0]])(np.full(model.shapes[0], np.nan, np.float32))
    with pytest.raises(FedwiseError, match="client 'ash' is not finite"):
        read_update(model, replies[0], "ash")
    arrays, metrics = strategy.aggregate_train(1, replies)
    assert metrics["clients"] == 2
    assert np.isfinite(model.flatten({k: v.numpy() for k, v in arrays.items()})).all()
    assert strategy.aggregate_train(1, replies[:1]) == (None, None)


def test_a_plain_grid_is_refused(build, model):
    spy, federation = build()
    strategy = FedwiseStrategy(model=model, sizes=federation.sizes)
    with pytest.raises(FedwiseError, match="select_federation"):
        strategy.configure_train(1, write_vector(model, model.initial(0)), ConfigRecord(), spy)


def test_the_weight_that_travels_is_the_noisy_one(build, model):
    spy, federation = build(weight="released")
    run(FedAvg(fraction_evaluate=0.0), federation, model, rounds=1)
    weights = {
        federation.grid.names[reply.metadata.src_node_id]: reply.content["metrics"]["num-examples"]
        for reply in spy.received
        if "metrics" in reply.content.metric_records
    }
    assert weights == pytest.approx(federation.sizes)
    assert all(weight not in (300.0, 400.0, 500.0) for weight in weights.values())


def test_a_node_that_lost_its_context_takes_its_weight_from_the_saved_release(build, model):
    spy, federation = build(weight="released")
    for context in spy.grid.contexts.values():
        context.state = RecordDict()
    run(FedAvg(fraction_evaluate=0.0), federation, model, rounds=1)
    assert federation.grid.missing == []


def test_without_a_release_there_is_no_noisy_weight(tmp_path, small_schema, model):
    app = train_app(schema=small_schema, policy="x", model=model, settings=SETTINGS)
    grid = FederationGrid(InProcessGrid(app, [make_node(tmp_path, "ash")]), {"ash": 1001})
    content = RecordDict({"arrays": write_vector(model, model.initial(0)), "config": ConfigRecord()})
    (reply,) = grid.send_and_receive([Message(content, 1001, "train")])
    assert reply.has_error()
    with pytest.raises(FedwiseError, match="weight must be"):
        train_app(schema=small_schema, weight="rows")


@pytest.fixture
def quick_noise(monkeypatch):
    """The accountant has tests of its own; here only what it is asked matters."""
    calls = []

    def scale_noise(*asked):
        calls.append(asked)
        return 2.0

    monkeypatch.setattr("fedwise.owner.allowance.scale_noise", scale_noise)
    return calls


def test_private_training_keeps_its_promise_over_restarts(build, model, quick_noise):
    spy, federation = build(weight="released", train_epsilon=4.0, train_rounds=2)
    vector, result = run(FedAvg(fraction_evaluate=0.0), federation, model, rounds=2)
    assert np.isfinite(vector).all()
    assert federation.grid.missing == []
    assert "loss" not in result.train_metrics_clientapp[1]
    # The numbers of records that the releases tell, in batches of 64, for two rounds; once for each client.
    told = sorted((round(federation.sizes[name]) for name in federation.clients), reverse=True)
    assert sorted(quick_noise) == [(4.0, 1e-5, 64 / n, 2 * math.ceil(n / 64)) for n in told]
    # One noisy number may be the true one by chance (some percent); all three are not (less than 1 in 10,000).
    assert set(told) != {300, 400, 500}
    # A third round, after a restart with empty context: every client refuses.
    for context in spy.grid.contexts.values():
        context.state = RecordDict()
    nothing, _ = run(FedAvg(fraction_evaluate=0.0), federation, model, rounds=1)
    assert nothing is None
    assert {m.client for m in federation.grid.missing} == set(federation.clients)


def test_private_clients_give_no_exact_losses(build, model):
    _, federation = build(weight="released", train_epsilon=4.0, train_rounds=5)
    content = RecordDict({"arrays": write_vector(model, model.initial(0)), "config": ConfigRecord()})
    for kind in (f"query.{LOSS_ACTION}", "evaluate"):
        (reply,) = federation.grid.send_and_receive([Message(content, 1001, kind)])
        assert reply.has_error()


def test_private_training_adds_noise(build, model, quick_noise):
    """Two private updates from one start differ; two plain ones do not."""
    _, federation = build(weight="released", train_epsilon=4.0, train_rounds=5)
    first_run, _ = run(FedAvg(fraction_evaluate=0.0), federation, model, rounds=1)
    second_run, _ = run(FedAvg(fraction_evaluate=0.0), federation, model, rounds=1)
    assert np.abs(first_run - second_run).max() > 1e-6


def test_the_first_round_of_a_small_node_is_finite(tmp_path, small_schema, model):
    """One row is enough to train on."""
    app = release_app()
    train_app(app, schema=small_schema, policy="x", model=model, weight="equal")
    nodes = [make_node(tmp_path, name, frame=make_people(1, i)) for i, name in enumerate(NAMES[:2])]
    plan = fw.plan(small_schema, epsilon=1.0)
    federation = select_federation(InProcessGrid(app, nodes), plan, k=2, select=first, timeout=5, poll=0.01)
    vector, result = run(FedAvg(fraction_evaluate=0.0), federation, model, rounds=1)
    assert math.isfinite(result.train_metrics_clientapp[1]["loss"])
    assert np.isfinite(vector).all()
