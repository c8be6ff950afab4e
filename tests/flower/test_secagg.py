"""Secure aggregation: the aggregate is right, no update is ever in the clear, and nothing fails silently."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.serverapp.strategy import FedAdam, FedAvg

from fedwise.errors import FedwiseError
from fedwise.flower import FederationGrid, InProcessGrid, SecAgg, guard_mod, secagg_mod
from fedwise.flower.grid import GridView
from fedwise.flower.secagg import SecAggHalted
from fedwise.flower.secagg_wire import (
    RECORD,
    Masked,
    Opened,
    Shares,
    read_answer,
    write,
)
from fedwise.flower.training import LOSS_ACTION
from flower.kit import SpyGrid

NODES = {"ash": 1001, "birch": 1002, "cedar": 1003, "date": 1004}
SHAPES = {"w": (5, 3), "b": (3,)}
WEIGHTS = {1001: 120, 1002: 400, 1003: 77, 1004: 900}


def update_of(node):
    """A client's parameters: known to the test, secret to the server."""
    rng = np.random.default_rng(node)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}


def train(message, context):
    arrays = ArrayRecord({name: Array(value) for name, value in update_of(context.node_id).items()})
    metrics = MetricRecord({"num-examples": WEIGHTS[context.node_id], "loss": 0.123})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


def build(*mods, handler=train, evaluate=None):
    app = ClientApp(mods=list(mods))
    app.train()(handler)
    if evaluate is not None:
        app.evaluate()(evaluate)
    spy = SpyGrid(InProcessGrid(app, 4))
    return spy, FederationGrid(spy, NODES, grace=0.0)


def zeros():
    return ArrayRecord({name: Array(np.zeros(shape, np.float32)) for name, shape in SHAPES.items()})


def average(strategy, grid, rounds=1):
    result = strategy.start(grid=grid, initial_arrays=zeros(), num_rounds=rounds, timeout=30)
    return {name: array.numpy() for name, array in result.arrays.items()}


def secure(grid, **options):
    return SecAgg(grid, **{"max_weight": 1000, "clipping_range": 8.0, **options})


def bound(clipping_range, max_weight, nodes=WEIGHTS):
    """Each client rounds by at most one step of 2·clip/2²², and its weight by half a step of max_weight/2²²."""
    total = sum(WEIGHTS[node] for node in nodes) / max_weight
    return (len(nodes) * 2 * clipping_range / 2**22 + len(nodes) * 5 / 2**22) / total + 1e-6


@pytest.mark.parametrize(
    ("kind", "slack"),
    [
        (FedAvg, 1.0),
        # FedAdam divides by a root of at least tau = 1e-3 and multiplies by eta = 0.1, twice.
        (FedAdam, 200.0),
    ],
)
def test_it_equals_the_plain_strategy_within_the_quantisation(kind, slack):
    _, plain = build()
    _, masked = build(guard_mod, secagg_mod)
    expected = average(kind(fraction_evaluate=0.0), plain, rounds=2)
    found = average(kind(fraction_evaluate=0.0), secure(masked), rounds=2)
    for name in SHAPES:
        assert found[name].dtype == expected[name].dtype
        np.testing.assert_allclose(found[name], expected[name], atol=slack * bound(8.0, 1000))


def test_the_server_never_sees_an_update_or_a_weight_in_the_clear():
    spy, masked = build(guard_mod, secagg_mod)
    average(FedAvg(fraction_evaluate=0.0), secure(masked))
    assert len(spy.received) == 4 * 4  # four stages, four clients
    masked_vectors = 0
    for reply in spy.received:
        node = reply.metadata.src_node_id
        secret = update_of(node)
        # One record with one field of bytes: no array, no metric, no number beside it.
        assert list(reply.content) == [RECORD]
        ((_, data),) = reply.content.config_records[RECORD].items()
        assert isinstance(data, bytes)
        assert all(array.tobytes() not in data for array in secret.values())
        answer = read_answer(reply.content)
        if isinstance(answer, Masked):
            masked_vectors += 1
            assert answer.names == ()
            check_masked(np.frombuffer(answer.words, "<u4"), secret, WEIGHTS[node])
    assert masked_vectors == 4


def check_masked(words, secret, weight):
    """A masked number is uniform on [0, 2³²): it is not the quantised weight or parameter."""
    values = np.concatenate([secret[name].ravel() for name in sorted(secret)])
    steps = [weight * 2**22 / 1000, 0, 0, *(values * weight / 1000 * 2**21 / 8.0)]
    quantised = np.rint(steps).astype(np.int64)
    assert words.shape == quantised.shape
    # Two numbers agree to a step with probability 2⁻³⁰ each.
    distance = (words.astype(np.int64) - quantised) % 2**32
    assert (np.minimum(distance, 2**32 - distance) > 1).all()
    # All of 18 uniform numbers within 2²² of zero: below 2⁻¹⁶⁰.
    assert (np.abs(words.astype(np.int32).astype(np.int64)) >= 2**22).any()


def test_a_client_lost_before_masking_is_left_out_of_a_second_attempt():
    spy, masked = build(guard_mod, secagg_mod)
    spy.grid.silent.add(1002)
    found = average(FedAvg(fraction_evaluate=0.0), secure(masked))
    rest = [1001, 1003, 1004]
    for name in SHAPES:
        expected = np.average([update_of(n)[name] for n in rest], axis=0, weights=[WEIGHTS[n] for n in rest])
        np.testing.assert_allclose(found[name], expected, atol=bound(8.0, 1000, rest))
    assert {m.client for m in masked.missing} == {"birch"}


def leaves_at(spy, node, stage):
    """The node answers `stage` − 1 messages and no more."""
    real, seen = spy.grid.app, []

    def app(message, context):
        if context.node_id == node:
            seen.append(message)
            if len(seen) == stage:
                spy.grid.silent.add(node)
                raise RuntimeError("killed")
        return real(message, context)

    spy.grid.app = app


def test_a_client_lost_while_training_is_taken_out_of_the_sum():
    spy, masked = build(guard_mod, secagg_mod)
    leaves_at(spy, 1002, 3)
    found = average(FedAvg(fraction_evaluate=0.0), secure(masked))
    rest = [1001, 1003, 1004]
    for name in SHAPES:
        expected = np.average([update_of(n)[name] for n in rest], axis=0, weights=[WEIGHTS[n] for n in rest])
        np.testing.assert_allclose(found[name], expected, atol=bound(8.0, 1000, rest))


@pytest.mark.parametrize("on_halt", ["raise", "skip"])
def test_a_halt_is_never_silent(on_halt):
    spy, masked = build(guard_mod, secagg_mod)
    leaves_at(spy, 1002, 3)
    leaves_at(spy, 1003, 3)
    grid = secure(masked, on_halt=on_halt)
    if on_halt == "raise":
        with pytest.raises(SecAggHalted, match="collection of masked updates: 2 of 4"):
            average(FedAvg(fraction_evaluate=0.0), grid)
    else:
        assert average(FedAvg(fraction_evaluate=0.0), grid) == {}
    assert [halt.stage for halt in grid.halted] == [2]


def test_parameters_out_of_range_stop_the_round():
    """Flower would clip in silence."""
    _, masked = build(guard_mod, secagg_mod)
    with pytest.raises(SecAggHalted, match="4 of 4 clients would be clipped; raise clipping_range"):
        average(FedAvg(fraction_evaluate=0.0), secure(masked, clipping_range=0.05))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_parameter_that_is_no_number_stops_the_round(bad):
    def diverged(message, context):
        reply = train(message, context)
        if context.node_id == 1003:
            value = update_of(1003)["w"]
            value[2, 1] = bad
            reply.content.array_records["arrays"]["w"] = Array(value)
        return reply

    _, masked = build(guard_mod, secagg_mod, handler=diverged)
    with pytest.raises(SecAggHalted, match="1 of 4 clients would be clipped"):
        average(FedAvg(fraction_evaluate=0.0), secure(masked))


def test_a_client_above_the_largest_weight_stops_the_round_and_is_not_named():
    """Flower would overflow. A refusal by name would tell the server one client's weight, by bisection."""
    spy, masked = build(guard_mod, secagg_mod)
    with pytest.raises(SecAggHalted, match="1 of 4 clients are above max_weight; raise it"):
        average(FedAvg(fraction_evaluate=0.0), secure(masked, max_weight=500))
    assert masked.missing == []
    assert not any(reply.has_error() for reply in spy.received)


def test_a_client_gives_no_update_outside_the_protocol():
    spy, masked = build(guard_mod, secagg_mod)
    assert average(FedAvg(fraction_evaluate=0.0), masked) == {}
    assert all(reply.has_error() for reply in spy.received)


def test_a_client_refuses_a_low_threshold():
    _, masked = build(guard_mod, secagg_mod)
    with pytest.raises(SecAggHalted, match="exchange of keys: 0 of 4"):
        average(FedAvg(fraction_evaluate=0.0), secure(masked, reconstruction_threshold=0.5))


def test_evaluation_is_the_weighted_mean_of_the_cohort():
    losses = {node: {"loss": 0.1 * node, "accuracy": 1 / (node - 1000)} for node in WEIGHTS}

    def evaluate(message, context):
        metrics = MetricRecord({**losses[context.node_id], "num-examples": WEIGHTS[context.node_id]})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    spy, masked = build(guard_mod, secagg_mod, evaluate=evaluate)
    result = FedAvg().start(grid=secure(masked), initial_arrays=zeros(), num_rounds=1, timeout=30)
    found = result.evaluate_metrics_clientapp[1]
    assert set(found) == {"loss", "accuracy"}
    for name in found:
        expected = np.average([losses[n][name] for n in WEIGHTS], weights=list(WEIGHTS.values()))
        # Steps of 2·10⁶/2⁵⁰, one a client, over weights of 1497/1000.
        assert found[name] == pytest.approx(expected, abs=1e-8)
    answers = [read_answer(reply.content) for reply in spy.received]
    assert [a.names for a in answers if isinstance(a, Masked)] == [()] * 4 + [("accuracy", "loss")] * 4
    assert not any(reply.content.metric_records for reply in spy.received)


def test_a_client_with_other_metrics_than_the_rest_is_left_out():
    def evaluate(message, context):
        node = context.node_id
        extra = {"more": 1.0} if node == 1001 else {}
        metrics = MetricRecord({"loss": node / 1000, "num-examples": WEIGHTS[node], **extra})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    _, masked = build(guard_mod, secagg_mod, evaluate=evaluate)
    messages = [Message(RecordDict(), node, "evaluate") for node in WEIGHTS]
    (reply,) = secure(masked).send_and_receive(messages)
    rest = [1002, 1003, 1004]
    expected = np.average([node / 1000 for node in rest], weights=[WEIGHTS[node] for node in rest])
    assert dict(reply.content.metric_records["metrics"]) == {
        "loss": pytest.approx(expected, abs=1e-8),
        "num-examples": 1.0,
    }


def test_a_metric_that_is_a_list_is_refused():
    def evaluate(message, context):
        metrics = MetricRecord({"curve": [0.1, 0.2], "num-examples": 7})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    _, masked = build(guard_mod, secagg_mod, evaluate=evaluate)
    messages = [Message(RecordDict(), node, "evaluate") for node in WEIGHTS]
    with pytest.raises(SecAggHalted, match="collection of masked updates: 0 of 4"):
        secure(masked).send_and_receive(messages)


@pytest.mark.parametrize(
    "broken",
    [
        lambda content: content.array_records["arrays"].update({"w": Array(np.zeros(4))}),
        lambda content: content.array_records["arrays"].update({"more": Array(np.zeros(4))}),
        lambda content: content.update({"second": ArrayRecord({})}),
        lambda content: content.pop("metrics"),
        lambda content: content.metric_records["metrics"].update({"num-examples": 0}),
        lambda content: content.metric_records["metrics"].update({"num-examples": float("nan")}),
    ],
    ids=["other shape", "another array", "two records", "no metrics", "no rows", "no number of rows"],
)
def test_an_update_that_does_not_fit_is_left_out(broken):
    def handler(message, context):
        reply = train(message, context)
        if context.node_id == 1002:
            broken(reply.content)
        return reply

    _, masked = build(guard_mod, secagg_mod, handler=handler)
    found = average(FedAvg(fraction_evaluate=0.0), secure(masked))
    rest = [1001, 1003, 1004]
    for name in SHAPES:
        expected = np.average([update_of(n)[name] for n in rest], axis=0, weights=[WEIGHTS[n] for n in rest])
        np.testing.assert_allclose(found[name], expected, atol=bound(8.0, 1000, rest))
    assert {m.client for m in masked.missing} == {"birch"}


def test_what_the_grid_does_not_take():
    _, masked = build(guard_mod, secagg_mod)
    grid = secure(masked)
    (reply,) = grid.send_and_receive([Message(RecordDict(), 1001, "query.nothing")])
    assert reply.has_error()
    assert grid.send_and_receive([]) == []
    for kinds in (["train.other"], ["train", "evaluate"], ["evaluate.other"]):
        with pytest.raises(FedwiseError, match="'train' only or 'evaluate' only"):
            grid.send_and_receive([Message(RecordDict(), 1001, kind) for kind in kinds])
    with pytest.raises(FedwiseError, match="tell no loss of their own; use a sampler"):
        grid.send_and_receive([Message(RecordDict(), 1001, f"query.{LOSS_ACTION}")])
    apart = [
        Message(RecordDict({"arrays": zeros(), "config": ConfigRecord({"mu": mu})}), node, "train")
        for node, mu in ((1001, 0.1), (1002, 0.1), (1003, 0.2))
    ]
    with pytest.raises(FedwiseError, match="all clients the same content"):
        grid.send_and_receive(apart)
    with pytest.raises(FedwiseError, match="on_halt must be"):
        secure(masked, on_halt="ignore")


class ProtoGrid(GridView):
    """Everything goes through Flower's wire format, both ways, and so does what nodes remember."""

    def send_and_receive(self, messages, *, timeout=None):
        def copied(content):
            proto = recorddict_to_proto(content)
            return recorddict_from_proto(type(proto).FromString(proto.SerializeToString()))

        out = []
        for message in messages:
            context = self.grid.contexts[message.metadata.dst_node_id]
            context.state = copied(context.state)
            message.content = copied(message.content)
            (reply,) = self.grid.send_and_receive([message])
            if not reply.has_error():
                reply.content = copied(reply.content)
            out.append(reply)
        return out


def test_the_protocol_survives_flowers_wire_format_and_its_large_node_ids():
    app = ClientApp(mods=[secagg_mod])
    app.train()(train)
    grid = InProcessGrid(app, 3)
    large = [2**64 - 1, 2**63, 5]
    names = dict(zip(large, grid.contexts, strict=True))
    for node, old in names.items():
        grid.contexts[node] = grid.contexts.pop(old)
        grid.contexts[node].node_id = node
        WEIGHTS[node] = WEIGHTS[old]
    try:
        content = RecordDict(
            {"arrays": zeros(), "config": ConfigRecord({"lr": 0.1, "names": ["z", "a"], "n": 3})}
        )
        (reply,) = secure(ProtoGrid(grid)).send_and_receive(
            [Message(content, node, "train") for node in large]
        )
        weights = [WEIGHTS[node] for node in large]
        for name in SHAPES:
            expected = np.average([update_of(node)[name] for node in large], axis=0, weights=weights)
            found = reply.content.array_records["arrays"][name].numpy()
            np.testing.assert_allclose(found, expected, atol=bound(8.0, 1000, large))
    finally:
        for node in large:
            del WEIGHTS[node]


@pytest.mark.parametrize("broken", ["too few sealed", "bad share", "bad key share", "no shares"])
def test_a_faulty_client_stops_the_round_with_a_sentence(broken):
    """What a client sends is checked before it is used: no traceback, no wrong mean."""

    def faulty(message, context, call_next):
        reply = secagg_mod(message, context, call_next)
        answer = read_answer(reply.content)
        if context.node_id == 1001 and isinstance(answer, Shares) and broken == "too few sealed":
            reply.content[RECORD] = write(Shares({}))
        if context.node_id == 1001 and isinstance(answer, Opened):
            shares = dict(answer.shares)
            if broken == "bad share":
                shares[1002] = shares[1002][:4] + bytes(48)
            elif broken == "bad key share":
                shares[1004] = shares[1004][:4] + bytes(32) + shares[1004][36:]
            elif broken == "no shares":
                shares = {}
            reply.content[RECORD] = write(Opened(shares))
        return reply

    spy, masked = build(faulty)
    leaves_at(spy, 1004, 3)
    options = {"reconstruction_threshold": 3, "retries": 0}
    if broken == "too few sealed":
        with pytest.raises(SecAggHalted, match="sharing of keys: 3 of 4"):
            average(FedAvg(fraction_evaluate=0.0), secure(masked, **options))
        return
    with pytest.raises(FedwiseError, match="shares that do not fit together"):
        average(FedAvg(fraction_evaluate=0.0), secure(masked, **options))
