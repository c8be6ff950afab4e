"""Cohorts and keys a client refuses: too few clients, wrong bounds, forged or repeated keys."""

from __future__ import annotations

import pytest

from fedwise.errors import FedwiseError
from fedwise.flower import Policy
from fedwise.flower import masks as masks_module
from fedwise.flower.secagg import secagg_mod
from fedwise.flower.secagg_client import LEAST_COHORT
from fedwise.flower.secagg_wire import Collect, Introduce
from flower.kit import make_node
from flower.secagg_kit import Refused, Server, make_app, parameters, policy


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
