"""Unmasking: which sums a client opens, and that each step comes once and in its order."""

from __future__ import annotations

import msgspec
import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.secure_aggregation.crypto.shamir import combine_shares

from fedwise.flower import claims
from fedwise.flower.secagg import secagg_mod
from fedwise.flower.secagg_wire import RECORD, Collect, Introduce, Opened, Unmask
from flower.secagg_kit import Refused, Server, make_app, sessions


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
