"""Secure aggregation against the server: each attack here got something exact before, or would without a check."""

from __future__ import annotations

import itertools

import msgspec
import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common.secure_aggregation.crypto.shamir import combine_shares
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen

from fedwise.errors import FedwiseError
from fedwise.flower import InProcessGrid, Policy, claims, guard_mod, release_app
from fedwise.flower import masks as masks_module
from fedwise.flower.masks import Masker, agree, derive
from fedwise.flower.quantisation import of_updates
from fedwise.flower.secagg import secagg_mod
from fedwise.flower.secagg_client import LEAST_COHORT, Session
from fedwise.flower.secagg_wire import (
    RECORD,
    Collect,
    Introduce,
    Opened,
    Setup,
    Unmask,
    content_digest,
    roster_digest,
)
from fedwise.flower.training import LOSS_ACTION
from flower.kit import make_node
from flower.secagg_kit import Refused, Server, make_app, parameters, policy, update_of, weight_of


def flat(node):
    update = update_of(node)
    return np.concatenate([update[name].ravel() for name in sorted(update)]).astype(float)


def sessions(server):
    """What the clients remember: the test may look, the server may not."""
    return {
        node: msgspec.msgpack.decode(context.state.config_records[RECORD]["session"], type=Session)
        for node, context in server.grid.contexts.items()
    }


# --- audit 3: one update out of the masks, by trying the seeds ---


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


# --- audit 4: exact oracles beside the protocol ---

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


# --- cohorts that are none ---


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"clients": 1, "threshold": 1}, "3 to 1000 clients, got 1"),
        ({"clients": 2, "threshold": 2}, "3 to 1000 clients, got 2"),
        ({"clients": 0, "threshold": 0}, "3 to 1000 clients, got 0"),
        ({"clients": -3, "threshold": 1}, "3 to 1000 clients, got -3"),
        ({"clients": 1001, "threshold": 900}, "3 to 1000 clients, got 1001"),
        ({"clients": 4, "threshold": 2}, "above half of the 4 clients, got 2"),
        ({"clients": 3, "threshold": 1}, "above half of the 3 clients, got 1"),
        ({"clients": 3, "threshold": 4}, "above half of the 3 clients, got 4"),
        ({"clipping_range": float("nan")}, "clipping_range must be a finite number above 0"),
        ({"clipping_range": 0.0}, "clipping_range must be a finite number above 0"),
        ({"max_weight": float("inf")}, "max_weight must be a finite number above 0"),
        ({"max_weight": -1.0}, "max_weight must be a finite number above 0"),
    ],
)
def test_terms_a_client_refuses(changes, reason):
    server = Server(3)
    with pytest.raises(Refused, match=reason):
        server.ask(1001, server.terms(**changes))
    with pytest.raises(Refused, match="not under way"):
        server.ask(1001, Introduce({}))


def test_a_server_that_announces_three_and_introduces_fewer_gets_nothing():
    server = Server(3)
    roster = server.roster()
    for few in (1, 2):
        some = dict(list(roster.items())[:few])
        with pytest.raises(Refused, match=f"the 3 clients it announced, got {few}"):
            server.ask(1001, Introduce(some))
        roster = server.roster()


@pytest.mark.parametrize(("nodes", "least", "answered"), [(2, 2, True), (3, 4, False), (4, 4, True)])
def test_the_owner_sets_the_least_cohort(nodes, least, answered):
    server = Server(nodes, least=least)
    if answered:
        assert set(server.roster()) == set(server.nodes)
    else:
        with pytest.raises(Refused, match="4 to 1000 clients, got 3"):
            server.roster()


def test_the_nodes_own_policy_goes_first_and_a_broken_one_answers_nothing(tmp_path):
    """Without a policy the default holds; with one that cannot be read nothing does."""
    app = make_app(secagg_mod)
    strict = make_node(tmp_path, "ash", least_cohort=5)
    for config, reason in (
        ({}, None),
        (strict, "5 to 1000 clients, got 3"),
        ({"policy": str(tmp_path / "none.toml")}, "no usable policy"),
    ):
        server = Server(3, app=app)
        server.grid.contexts[1001].node_config.update(config)
        if reason is None:
            server.ask(1001, server.terms())
        else:
            with pytest.raises(Refused, match=reason):
                server.ask(1001, server.terms())


def test_the_policys_default_is_the_mods():
    fields = dict(zip(Policy.__struct_fields__[::-1], Policy.__struct_defaults__[::-1], strict=False))
    assert fields["least_cohort"] == LEAST_COHORT == 3
    with pytest.raises(FedwiseError, match="least_cohort must be at least 2, got 1"):
        policy(1)


# --- keys ---


def reflected(roster):
    """The victim's own keys under another name: the server knows no secret, but masks would cancel."""
    return {**roster, 1002: roster[1001]}


def respelled(roster):
    """The same, with the bit that X25519 ignores flipped."""
    return {**roster, 1002: tuple(key[:31] + bytes([key[31] ^ 0x80]) for key in roster[1001])}


def repeated(roster):
    return {**roster, 1002: roster[1003]}


def one_key_twice(roster):
    return {**roster, 1002: (roster[1002][0], roster[1002][0])}


def short(roster):
    return {**roster, 1002: (roster[1002][0][:16], roster[1002][1])}


def forged_own(roster):
    made = masks_module.public_of(masks_module.new_private())
    return {**roster, 1001: (made, roster[1001][1])}


def without_own(roster):
    made = tuple(masks_module.public_of(masks_module.new_private()) for _ in range(2))
    return {**{node: keys for node, keys in roster.items() if node != 1001}, 1999: made}


@pytest.mark.parametrize(
    ("forge", "reason"),
    [
        (reflected, "different, valid keys"),
        (respelled, "different, valid keys"),
        (repeated, "different, valid keys"),
        (one_key_twice, "different, valid keys"),
        (short, "different, valid keys"),
        (forged_own, "with its own keys"),
        (without_own, "with its own keys"),
    ],
)
def test_rosters_a_client_refuses(forge, reason):
    server = Server(3)
    roster = server.roster()
    with pytest.raises(Refused, match=reason):
        server.ask(1001, Introduce(forge(roster)))


def test_a_key_of_small_order_is_refused():
    server = Server(3)
    roster = server.roster()
    with pytest.raises(Refused, match="invalid public key"):
        server.ask(1001, Introduce({**roster, 1002: (roster[1002][0], bytes(32))}))


def test_clients_that_were_shown_different_cohorts_do_not_go_on():
    """The server swaps one mask key for its own towards one client; sealed shares then open for nobody."""
    server = Server(3)
    roster = server.roster()
    own = masks_module.public_of(masks_module.new_private())
    other = {**roster, 1003: (own, roster[1003][1])}
    shares = {node: server.ask(node, Introduce(other if node == 1001 else roster)) for node in (1001, 1002)}
    shares[1003] = server.ask(1003, Introduce(roster))
    for node in (1001, 1002, 1003):
        with pytest.raises(Refused, match="the same cohort"):
            server.collect(node, shares)


def test_every_other_client_must_have_shared():
    server = Server(4)
    shares = server.share(server.roster())
    sealed = {sender: found.sealed[1001] for sender, found in shares.items() if sender not in (1001, 1002)}
    with pytest.raises(Refused, match="a share of every other client"):
        server.ask(1001, Collect(sealed), content=parameters())


# --- unmasking ---


@pytest.mark.parametrize(
    ("survivors", "reason"),
    [
        ([1001], "at least 3 clients, got 1"),
        ([1001, 1002], "at least 3 clients, got 2"),
        ([1001, 1001, 1001, 1001], "survivors of its own cohort, each once"),
        ([1001, 1002, 1003, 1999], "survivors of its own cohort, each once"),
        ([1002, 1003, 1004], "among the survivors"),
    ],
)
def test_sums_a_client_does_not_open(survivors, reason):
    server = Server(4)
    server.begin()
    with pytest.raises(Refused, match=reason):
        server.unmask(1001, survivors)
    # Nor may the server try again with better words.
    with pytest.raises(Refused, match="not under way"):
        server.unmask(1001, server.nodes)


def test_the_least_cohort_binds_the_sum_too():
    """Five clients announced, four kept: enough for the threshold, too few for the owner."""
    server = Server(5, least=5)
    server.begin()
    with pytest.raises(Refused, match="at least 5 clients, got 4"):
        server.unmask(1001, server.nodes[:4])


def test_the_threshold_binds_the_sum_too():
    server = Server(6)
    server.begin(threshold=5)
    with pytest.raises(Refused, match="at least 5 clients, got 4"):
        server.unmask(1001, server.nodes[:4])


def test_a_request_for_both_secrets_of_a_client_cannot_be_written():
    server = Server(4)
    server.begin()
    before = sessions(server)[1001]
    answer = server.unmask(1001, [1001, 1002, 1003])
    assert isinstance(answer, Opened)
    assert answer.shares == {
        node: before.held[node][0 if node != 1004 else 1] for node in (1001, 1002, 1003, 1004)
    }
    # Flower's spelling, with two lists that overlap, is no request of this protocol.
    extra = ConfigRecord({"message": msgspec.msgpack.encode({"type": "unmask", "survivors": [], "dead": []})})
    (reply,) = server.grid.send_and_receive([Message(RecordDict({RECORD: extra}), 1002, "train")])
    assert reply.has_error()


def rebuilt(shares):
    try:
        return combine_shares(shares)
    except ValueError:
        return None


def test_telling_clients_different_stories_opens_no_single_update():
    """Half of the clients hear that the victim survived, half that it was lost: neither secret can be rebuilt."""
    server = Server(6)
    roster = server.roster(threshold=4)
    shares = server.share(roster)
    victim = sessions(server)[1001]
    for node in server.nodes:
        server.collect(node, shares)
    found = {"seed": [], "key": []}
    for number, node in enumerate(server.nodes):
        story = "key" if number % 2 else "seed"
        survivors = server.nodes if story == "seed" else server.nodes[1:]
        found[story].append(server.unmask(node, survivors).shares[1001])
    assert [len(shares) for shares in found.values()] == [3, 3]
    assert rebuilt(found["seed"]) != victim.seed
    assert rebuilt(found["key"]) != victim.mask_key


def test_a_second_message_from_the_same_copy_of_the_state_is_refused():
    """Flower stores a node's state after the reply; two messages at once both see the state before."""
    server = Server(4)
    roster = server.roster()
    state = server.remember(1001)
    shares = server.share(roster)
    after_sharing = server.remember(1001)
    server.restore(1001, state)
    with pytest.raises(Refused, match="takes every step once"):
        server.ask(1001, Introduce(roster))

    server.restore(1001, after_sharing)
    for node in server.nodes:
        server.collect(node, shares)
    after_masking = server.remember(1001)
    server.restore(1001, after_sharing)
    with pytest.raises(Refused, match="takes every step once"):
        server.collect(1001, shares)

    server.restore(1001, after_masking)
    server.unmask(1001, server.nodes)
    server.restore(1001, after_masking)
    with pytest.raises(Refused, match="takes every step once"):
        server.unmask(1001, [1001, 1002, 1003])


def test_a_server_that_begins_again_and_again_leaves_one_session_on_a_node():
    server = Server(1)
    before = set(claims._folder().iterdir()) if claims._folder().exists() else set()
    for _ in range(5):
        server.ask(1001, server.terms(clients=3, threshold=2))
    assert len(set(claims._folder().iterdir()) - before) == 1


def test_stages_come_in_their_order_and_each_once():
    server = Server(3)
    roster = server.roster()
    requests = {"introduce": Introduce(roster), "collect": Collect({}), "unmask": Unmask(server.nodes)}
    for name in ("collect", "unmask"):
        with pytest.raises(Refused, match=f"must go on with 'introduce' of 'train', got '{name}'"):
            server.ask(1001, requests[name])
        # A wrong step ends the protocol on that node.
        with pytest.raises(Refused, match="not under way"):
            server.ask(1001, requests["introduce"])
        requests["introduce"] = Introduce(server.roster())
    server.ask(1001, requests["introduce"])
    with pytest.raises(Refused, match="must go on with 'collect'"):
        server.ask(1001, requests["introduce"])


def test_a_protocol_of_evaluation_does_not_turn_into_training():
    server = Server(3)
    roster = server.roster(kind="evaluate")
    with pytest.raises(Refused, match="'introduce' of 'evaluate', got 'introduce' of 'train'"):
        server.ask(1001, Introduce(roster), kind="train")


def test_a_failed_update_ends_the_protocol():
    def failing(message, context):
        raise RuntimeError("no")

    server = Server(3, app=make_app(secagg_mod, train=failing))
    shares = server.share(server.roster())
    for reason in ("no", "not under way"):
        with pytest.raises(Refused, match=reason):
            server.collect(1001, shares)


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
