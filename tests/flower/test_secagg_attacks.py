"""Attacks of the server on secure aggregation: each got something exact before, or would without a check."""

from __future__ import annotations

import itertools

import msgspec
import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common.secure_aggregation.crypto.shamir import combine_shares
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen

from fedwise.flower import InProcessGrid, guard_mod, release_app
from fedwise.flower import masks as masks_module
from fedwise.flower.masks import Masker, agree, derive
from fedwise.flower.quantisation import of_updates
from fedwise.flower.secagg import secagg_mod
from fedwise.flower.secagg_wire import RECORD, Setup, content_digest, roster_digest
from fedwise.flower.training import LOSS_ACTION
from flower.kit import make_node
from flower.secagg_kit import Refused, Server, flat, make_app, parameters, sessions, weight_of

# --- one update out of the masks, by trying the seeds ---


def fold(key):
    """The 32 bits Flower keeps of a key."""
    return int(np.bitwise_xor.reduce(np.frombuffer(key, "<u4")))


def folded(key, size, dtype):
    """Flower's own mask generator under our protocol, which is what 0.1.0 used."""
    (words,) = pseudo_rand_gen(key, 2**32, [(size,)])
    return words.astype(dtype)


def search(residue, window):
    """The curious server: try seeds until what is left looks like an update, and return it."""
    for seed in window:
        mask = folded(int(seed).to_bytes(4, "little"), len(residue), np.uint32)
        for left in (residue - mask, residue + mask):
            values = left[3:].view(np.int32).astype(np.int64)
            if (np.abs(values) <= 2**21).all():
                return of_updates(8.0, 1000.0).decode(left).mean
    return None


def attack_by_seeds():
    """An honest round of two clients; the server keeps what it gets and searches around the right seed."""
    server = Server(2, least=2)
    roster = server.roster()
    shares = server.share(roster)
    secret_keys = {node: session.mask_key for node, session in sessions(server).items()}
    masked = {node: server.collect(node, shares) for node in server.nodes}
    opened = [server.unmask(node, server.nodes) for node in server.nodes]
    one, two = server.nodes
    agreed = roster_digest("train", server.terms(), roster)
    transcript = content_digest(agreed, parameters())
    words = np.frombuffer(masked[one].words, "<u4").astype(np.uint32)
    seed = combine_shares([answer.shares[one] for answer in opened])
    residue = words - Masker(transcript, len(words), np.uint32).own(seed, one)
    # The whole search takes 2³² seeds, 20 minutes; the test gives the server all but ten bits of the answer.
    pair_key = derive(agree(secret_keys[one], roster[two][0]), b"pair", one, two, transcript)
    centre = fold(pair_key)
    return search(residue, range(max(centre - 512, 0), min(centre + 512, 2**32))), flat(one)


def test_the_search_finds_an_update_behind_folded_masks(monkeypatch):
    """The attack works where it should: with Flower's generator one client's update comes out."""
    monkeypatch.setattr(masks_module, "expand", folded)
    found, truth = attack_by_seeds()
    assert found is not None
    np.testing.assert_allclose(found, truth, atol=1e-4)


def test_the_search_finds_nothing_behind_the_real_masks():
    found, _ = attack_by_seeds()
    assert found is None


# --- exact oracles beside the protocol ---

CELLS = np.array([[31, 4], [7, 58]])  # people by attribute and label, of one client


def accuracy_oracle(message, context):
    """An app that evaluates the classifier it is sent: one prediction for each level of the attribute."""
    predicted = [int(message.content.config_records["config"][f"level{level}"]) for level in (0, 1)]
    right = sum(CELLS[level, label] for level, label in enumerate(predicted))
    metrics = MetricRecord({"accuracy": float(right / CELLS.sum()), "num-examples": int(CELLS.sum())})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


def cells_from_evaluations(grid, node):
    """Differences of two accuracies are differences of cells: all four classifiers, and the size."""
    right = {}
    for predicted in itertools.product((0, 1), repeat=2):
        config = ConfigRecord({f"level{level}": label for level, label in enumerate(predicted)})
        (reply,) = grid.send_and_receive([Message(RecordDict({"config": config}), node, "evaluate")])
        if reply.has_error():
            return None
        metrics = reply.content.metric_records["metrics"]
        right[predicted] = round(metrics["accuracy"] * metrics["num-examples"])
    return right[1, 0] - right[0, 0], right[0, 1] - right[0, 0]


def test_exact_cells_come_out_of_evaluations_without_the_mod_and_not_with_it():
    open_grid = InProcessGrid(make_app(guard_mod, evaluate=accuracy_oracle), 3)
    assert cells_from_evaluations(open_grid, 1001) == (4 - 31, 58 - 7)
    grid = InProcessGrid(make_app(guard_mod, secagg_mod, evaluate=accuracy_oracle), 3)
    assert cells_from_evaluations(grid, 1001) is None


@pytest.mark.parametrize("kind", ["train", "evaluate", f"query.{LOSS_ACTION}", "query.other", "train.other"])
def test_a_message_outside_the_protocol_is_refused_before_the_app_sees_it(kind):
    seen = []
    app = make_app(secagg_mod, train=lambda *_: seen.append(1), evaluate=lambda *_: seen.append(1))
    for name in ("other", LOSS_ACTION):
        app.query(name)(lambda *_: seen.append(1))
    app.train("other")(lambda *_: seen.append(1))
    server = Server(3, app=app)
    with pytest.raises(Refused, match="under secure aggregation only, or not at all"):
        server.ask(1001, None, kind=kind, content=parameters())
    assert seen == []


@pytest.mark.parametrize("kind", [f"query.{LOSS_ACTION}", "query.other"])
def test_the_protocol_is_no_way_to_other_handlers(kind):
    app = make_app(secagg_mod)
    app.query(kind.split(".")[1])(lambda *_: pytest.fail("was called"))
    server = Server(3, app=app)
    with pytest.raises(Refused, match="or not at all"):
        server.ask(1001, server.terms(), kind=kind)


def test_release_requests_pass(tmp_path):
    """The release phase has its own promise, and goes on under the mod."""
    from flwr.clientapp import ClientApp

    from fedwise.flower import wire

    app = release_app(ClientApp(mods=[guard_mod, secagg_mod]))
    grid = InProcessGrid(app, [make_node(tmp_path, "ash")])
    (reply,) = grid.send_and_receive([Message(wire.request(b"no plan"), 1001, wire.MESSAGE_TYPE)])
    assert str(wire.read_answer(reply)) == "unreadable"


# --- content ---


def open_sum(server, content_of):
    """A round in which each client is sent a content of its own; the server unmasks under each of them."""
    roster = server.roster()
    shares = server.share(roster)
    masked = {node: server.collect(node, shares, content_of(node)) for node in server.nodes}
    opened = {node: server.unmask(node, server.nodes) for node in server.nodes}
    agreed = roster_digest("train", server.terms(), roster)
    total = np.add.reduce(
        [np.frombuffer(masked[node].words, "<u4") for node in server.nodes], dtype=np.uint32
    )
    for node in server.nodes:
        masker = Masker(content_digest(agreed, content_of(node)), len(total), np.uint32)
        total = total - masker.own(combine_shares([found.shares[node] for found in opened.values()]), node)
    return total


def test_one_client_with_other_parameters_than_the_rest_spoils_the_sum():
    """With parameters that make the others' updates known, their sum would show the victim's alone."""

    def special(node):
        content = parameters()
        content.config_records["config"]["server-round"] = 2 if node == 1001 else 1
        return content

    quantiser = of_updates(8.0, 1000.0)
    nodes = Server(3).nodes
    mean = np.average([flat(n) for n in nodes], axis=0, weights=[weight_of(n) for n in nodes])
    fair = open_sum(Server(3), lambda node: parameters())
    np.testing.assert_allclose(quantiser.decode(fair).mean, mean, atol=1e-4)
    spoiled = open_sum(Server(3), special)[3:].view(np.int32).astype(np.int64)
    # 18 uniform words all within the range of a sum of three: below 2⁻¹⁶⁰.
    assert (np.abs(spoiled) > 3 * 2**21).any()


def test_bounds_tell_nothing_about_one_client():
    """A server that lowers max_weight to find one client's number of rows gets an answer from everybody."""
    for limit in (50.0, 200.0, 1000.0):
        server = Server(3)
        _, masked = server.begin(max_weight=limit)
        assert {len(found.words) for found in masked.values()} == {(3 + 18) * 4}


def test_requests_with_unknown_parts_are_refused():
    server = Server(3)
    assert isinstance(server.terms(), Setup)
    for data in (b"", b"\xc1", msgspec.msgpack.encode({"type": "setup"}), msgspec.msgpack.encode([1])):
        record = ConfigRecord({"message": data})
        (reply,) = server.grid.send_and_receive([Message(RecordDict({RECORD: record}), 1001, "train")])
        assert reply.has_error()
    (reply,) = server.grid.send_and_receive(
        [Message(RecordDict({RECORD: ConfigRecord({"message": 1})}), 1001, "train")]
    )
    assert reply.has_error()
