"""The clients' part of secure aggregation: only masked sums over a cohort leave the node.

The four stages are Bonawitz et al.'s (2017): public keys; sealed shares of two secrets; the masked update;
the shares that open the sum. Whatever a server asks, a client gives for each other client one share of one
of its two secrets, once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.common.secure_aggregation.crypto.shamir import create_shares

from ..errors import FedwiseError
from . import claims, masks, wire
from .guard import find_policy, masked_already
from .secagg_wire import (
    RECORD,
    Answer,
    Collect,
    Introduce,
    Keys,
    Masked,
    Opened,
    Setup,
    Shares,
    Unmask,
    content_digest,
    read_request,
    roster_digest,
    write,
)

#: Fewest clients in a sum, where the node has no policy that says otherwise.
LEAST_COHORT = 3
_KINDS = ("train", "evaluate")
_NEXT = {"introduce": "collect", "collect": "unmask", "unmask": None}

Handler = Callable[[Message, Context], Message]
Mod = Callable[[Message, Context, Handler], Message]


class Session(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a client remembers between two stages. Secret; in the node's own state."""

    name: str
    kind: str
    node: int
    #: The request that may come next.
    expects: str
    terms: Setup
    mask_key: bytes
    channel_key: bytes
    seed: bytes = b""
    roster: dict[int, tuple[bytes, bytes]] = msgspec.field(default_factory=dict)
    #: Shares of (seed, mask key) of every client, this one's own included.
    held: dict[int, tuple[bytes, bytes]] = msgspec.field(default_factory=dict)


def secagg_mod(message: Message, context: Context, call_next: Handler) -> Message:
    """The clients' part: ``ClientApp(mods=[guard_mod, secagg_mod])``.

    Train and evaluate messages are answered inside the protocol only, and release requests as ever. Every
    other message is refused, so a server cannot get an update, a metric or a loss of one client by leaving
    the protocol out. The least cohort is that of the policy in ``--node-config 'policy="policy.toml"'``; 3
    without one.
    """
    return _answer(message, context, call_next, None)


def secagg_mod_for(policy: Any) -> Mod:
    """`secagg_mod` with the app's own policy: a `Policy`, a path, or a function of the node's `Context`.

    A policy in the node's configuration goes first.
    """

    def mod(message: Message, context: Context, call_next: Handler) -> Message:
        return _answer(message, context, call_next, policy)

    return mod


def _answer(message: Message, context: Context, call_next: Handler, policy: Any) -> Message:
    kind = message.metadata.message_type
    if kind == wire.MESSAGE_TYPE or masked_already():
        return call_next(message, context)
    request = read_request(message.content) if kind in _KINDS else None
    if request is None:
        raise FedwiseError(
            f"this node answers '{kind}' messages under secure aggregation only, or not at all; "
            "use the SecAgg grid on the server"
        )
    least = _least_cohort(policy, context)
    # Out of the state first: a stage that fails ends the protocol, and none is answered twice.
    saved = context.state.config_records.pop(RECORD, None)
    if isinstance(request, Setup):
        _abandon(saved)
        answer, session = _set_up(request, kind, context.node_id, least)
    else:
        before = _resume(saved, request, kind)
        claims.advance(before.name, before.expects, _NEXT[before.expects])
        if isinstance(request, Introduce):
            answer, session = _share(before, request, least)
        elif isinstance(request, Collect):
            answer, session = _mask(before, request, message, context, call_next)
        else:
            answer, session = _open(before, request, least), None
    if session is not None:
        context.state[RECORD] = ConfigRecord({"session": msgspec.msgpack.encode(session)})
    return Message(RecordDict({RECORD: write(answer)}), reply_to=message)


def _least_cohort(policy: Any, context: Context) -> int:
    if policy is None and not context.node_config.get("policy"):
        return LEAST_COHORT
    return find_policy(policy, context).least_cohort


def _abandon(saved: ConfigRecord | None) -> None:
    """Forget a session that the server did not finish."""
    if saved is not None:
        old = msgspec.msgpack.decode(saved["session"], type=Session)
        with contextlib.suppress(FedwiseError):
            claims.advance(old.name, old.expects)


def _resume(saved: ConfigRecord | None, request: Introduce | Collect | Unmask, kind: str) -> Session:
    if saved is None:
        raise FedwiseError(
            "secure aggregation is not under way on this node; begin with the exchange of keys"
        )
    session = msgspec.msgpack.decode(saved["session"], type=Session)
    asked = str(type(request).__struct_config__.tag)
    if session.expects != asked or session.kind != kind:
        raise FedwiseError(
            f"secure aggregation must go on with '{session.expects}' of '{session.kind}', "
            f"got '{asked}' of '{kind}'; restart the round"
        )
    return session


def _set_up(terms: Setup, kind: str, node: int, least: int) -> tuple[Answer, Session]:
    """Agree to the terms, and make keys for this round only."""
    terms.check(least)
    session = Session(
        name=claims.begin("introduce"),
        kind=kind,
        node=node,
        expects="introduce",
        terms=terms,
        mask_key=masks.new_private(),
        channel_key=masks.new_private(),
    )
    return Keys(masks.public_of(session.mask_key), masks.public_of(session.channel_key)), session


def _share(session: Session, asked: Introduce, least: int) -> tuple[Answer, Session]:
    """Look at the cohort, and give every member a sealed share of both secrets."""
    roster, terms = asked.roster, session.terms
    if len(roster) != terms.clients or len(roster) < least:
        raise FedwiseError(
            f"secure aggregation must introduce the {terms.clients} clients it announced, got {len(roster)}; "
            "restart the round"
        )
    keys = [key for pair in roster.values() for key in pair]
    if len(set(keys)) != len(keys) or not all(masks.is_public(key) for key in keys):
        raise FedwiseError(
            "secure aggregation must have different, valid keys for all clients; restart the round"
        )
    own = (masks.public_of(session.mask_key), masks.public_of(session.channel_key))
    if roster.get(session.node) != own:
        raise FedwiseError(
            "secure aggregation must introduce this client with its own keys; restart the round"
        )
    seed = masks.new_seed()
    seeds = create_shares(seed, terms.threshold, len(roster))
    secrets = create_shares(session.mask_key, terms.threshold, len(roster))
    transcript = roster_digest(session.kind, terms, roster)
    sealed: dict[int, bytes] = {}
    held: dict[int, tuple[bytes, bytes]] = {}
    for node, pair in zip(sorted(roster), zip(seeds, secrets, strict=True), strict=True):
        if node == session.node:
            held[node] = pair
            continue
        channel = masks.agree(session.channel_key, roster[node][1])
        plain = msgspec.msgpack.encode(pair)
        sealed[node] = masks.seal(channel, session.node, node, plain, transcript=transcript)
    after = msgspec.structs.replace(session, expects="collect", seed=seed, roster=roster, held=held)
    return Shares(sealed), after


def _mask(
    session: Session, asked: Collect, message: Message, context: Context, call_next: Handler
) -> tuple[Answer, Session]:
    """Take everybody's shares, train or evaluate, and send the masked result."""
    node, roster = session.node, session.roster
    if set(asked.sealed) != set(roster) - {node}:
        raise FedwiseError("secure aggregation must bring a share of every other client; restart the round")
    agreed = roster_digest(session.kind, session.terms, roster)
    held = dict(session.held)
    for sender, sealed in asked.sealed.items():
        channel = masks.agree(session.channel_key, roster[sender][1])
        plain = masks.unseal(channel, sender, node, sealed, transcript=agreed)
        held[sender] = msgspec.msgpack.decode(plain, type=tuple[bytes, bytes])
    transcript = content_digest(agreed, message.content)
    names, values, weight = _result(session.kind, message, context, call_next)
    quantiser = session.terms.quantiser(session.kind)
    words = quantiser.encode(values, weight)
    masker = masks.Masker(transcript, len(words), words.dtype)
    words = words + masker.own(session.seed, node)
    for other in asked.sealed:
        words = words + masker.pair(masks.agree(session.mask_key, roster[other][0]), node, other)
    # The keys have done their work; what is left to say concerns the shares of others.
    after = msgspec.structs.replace(
        session, expects="unmask", held=held, mask_key=b"", channel_key=b"", seed=b""
    )
    return Masked(words.astype(words.dtype.newbyteorder("<")).tobytes(), names), after


def _open(session: Session, asked: Unmask, least: int) -> Answer:
    """For each survivor a share of its seed, for everybody else a share of its mask key."""
    survivors = set(asked.survivors)
    if len(survivors) != len(asked.survivors) or not survivors <= set(session.roster):
        raise FedwiseError("secure aggregation must name survivors of its own cohort, each once")
    if session.node not in survivors:
        raise FedwiseError("secure aggregation must count a client that it asks among the survivors")
    fewest = max(least, session.terms.threshold)
    if len(survivors) < fewest:
        raise FedwiseError(
            f"secure aggregation must open sums of at least {fewest} clients, got {len(survivors)}; "
            "restart the missing nodes"
        )
    return Opened(
        {node: seed if node in survivors else key for node, (seed, key) in sorted(session.held.items())}
    )


def _result(
    kind: str, message: Message, context: Context, call_next: Handler
) -> tuple[tuple[str, ...], npt.NDArray[np.float64], float]:
    """What the app's own handler says: names of metrics (none for updates), values, weight."""
    sent = dict(message.content)
    sent.pop(RECORD)
    message.content = RecordDict(sent)
    reply = call_next(message, context)
    if reply.has_error() or len(reply.content.metric_records) != 1:
        raise FedwiseError("secure aggregation needs a reply with exactly one MetricRecord")
    metrics = dict(next(iter(reply.content.metric_records.values())))
    weight = float(metrics.pop("num-examples"))
    if kind == "evaluate":
        if any(isinstance(value, list) for value in metrics.values()):
            raise FedwiseError("secure aggregation takes metrics that are single numbers, got a list")
        names = tuple(sorted(metrics))
        return names, np.array([metrics[name] for name in names], dtype=np.float64), weight
    if len(reply.content.array_records) != 1:
        raise FedwiseError("secure aggregation needs an update with exactly one ArrayRecord")
    update = {name: array.numpy() for name, array in next(iter(reply.content.array_records.values())).items()}
    # Shapes are not masked, so they must say nothing the server did not.
    asked = {name: tuple(array.shape) for name, array in sent["arrays"].items()}
    if {name: array.shape for name, array in update.items()} != asked:
        raise FedwiseError(
            "secure aggregation needs an update with the names and shapes of the parameters sent"
        )
    parts = [update[name].ravel().astype(np.float64) for name in sorted(update)]
    return (), np.concatenate(parts) if parts else np.zeros(0), weight
