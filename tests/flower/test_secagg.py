"""SecAgg+: the aggregate is right, no update is ever in the clear, and nothing fails silently."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common import bytes_to_ndarray
from flwr.serverapp.strategy import FedAdam, FedAvg

from fedwise.errors import FedwiseError
from fedwise.flower import FederationGrid, InProcessGrid, SecAgg, guard_mod, secagg_mod
from fedwise.flower.secagg import SecAggHalted
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


def build(*mods, handler=train):
    app = ClientApp(mods=list(mods))
    app.train()(handler)
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
        assert all(len(record) == 0 for record in reply.content.array_records.values())
        for record in reply.content.metric_records.values():
            assert WEIGHTS[node] not in record.values()
        for record in reply.content.config_records.values():
            for value in record.values():
                for part in value if isinstance(value, list) else [value]:
                    assert part != 0.123
                    if not isinstance(part, bytes):
                        continue
                    assert all(array.tobytes() not in part for array in secret.values())
                    if part.startswith(b"\x93NUMPY"):
                        masked_vectors += 1
                        check_masked(bytes_to_ndarray(part), secret, WEIGHTS[node])
    assert masked_vectors == 4 * (1 + len(SHAPES))


def check_masked(vector, secret, weight):
    """A masked number is uniform on [0, 2³²): it is not the quantised parameter, which is below 2²²."""
    for array in secret.values():
        if array.shape == vector.shape:
            quantised = (array * weight / 1000 + 8.0) * 2**22 / 16
            # Two numbers agree to a step with probability 2⁻³¹ each.
            assert (np.abs(vector - quantised) > 1).all()
    if vector.size >= 15:
        # All of 15 uniform numbers below 2²²: 2⁻¹⁵⁰.
        assert (vector >= 2**22).any()


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
    with pytest.raises(SecAggHalted):
        average(FedAvg(fraction_evaluate=0.0), secure(masked, clipping_range=0.05))


def test_a_client_above_the_largest_weight_stays_out_and_is_named():
    """Flower would overflow, with a warning on the client only."""
    _, masked = build(guard_mod, secagg_mod)
    found = average(FedAvg(fraction_evaluate=0.0), secure(masked, max_weight=500))
    rest = [1001, 1002, 1003]
    for name in SHAPES:
        expected = np.average([update_of(n)[name] for n in rest], axis=0, weights=[WEIGHTS[n] for n in rest])
        np.testing.assert_allclose(found[name], expected, atol=bound(8.0, 500, rest))
    assert [m.client for m in masked.missing] == ["date"]


def test_a_client_gives_no_update_outside_the_protocol():
    spy, masked = build(guard_mod, secagg_mod)
    assert average(FedAvg(fraction_evaluate=0.0), masked) == {}
    assert all(reply.has_error() for reply in spy.received)


def test_a_client_refuses_a_low_threshold():
    _, masked = build(guard_mod, secagg_mod)
    with pytest.raises(SecAggHalted, match="exchange of keys: 0 of 4"):
        average(FedAvg(fraction_evaluate=0.0), secure(masked, reconstruction_threshold=0.5))


def test_other_messages_pass_and_other_train_messages_do_not():
    _, masked = build(guard_mod, secagg_mod)
    grid = secure(masked)
    (reply,) = grid.send_and_receive([Message(RecordDict(), 1001, "query.nothing")])
    assert reply.has_error()
    with pytest.raises(FedwiseError, match="type 'train' only"):
        grid.send_and_receive([Message(RecordDict(), 1001, "train.other")])
    with pytest.raises(FedwiseError, match="on_halt must be"):
        secure(masked, on_halt="ignore")
