"""What travels in secure aggregation: four requests, four answers, and the digests both sides compute."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any

import msgspec
from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from ..errors import FedwiseError
from .quantisation import MOST_CLIENTS, Quantiser, of_metrics, of_updates

#: Record of the protocol, beside the strategy's own.
RECORD = "fedwise.secagg"
_FIELD = "message"
#: Node id, and the public keys for masks and for sealed shares.
Roster = Mapping[int, tuple[bytes, bytes]]


class Setup(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="setup"):
    """First request: the terms."""

    clients: int
    threshold: int
    clipping_range: float
    max_weight: float

    def quantiser(self, kind: str) -> Quantiser:
        """How numbers become integers, for ``train`` or ``evaluate``."""
        if kind == "train":
            return of_updates(self.clipping_range, self.max_weight)
        return of_metrics(self.max_weight)

    def check(self, least: int) -> None:
        """Refuse terms that would let a server see less than a cohort.

        Raises
        ------
        FedwiseError
            With the rule that is broken.
        """
        if not least <= self.clients <= MOST_CLIENTS:
            raise FedwiseError(
                f"secure aggregation must have {least} to {MOST_CLIENTS} clients, got {self.clients}; "
                "ask more clients (least_cohort in the owner's policy sets the lower bound)"
            )
        # Two disjoint groups of clients could otherwise be told different stories, and open both secrets.
        if not self.clients < 2 * self.threshold <= 2 * self.clients:
            raise FedwiseError(
                f"secure aggregation must use a threshold above half of the {self.clients} clients, "
                f"got {self.threshold}; raise reconstruction_threshold"
            )
        for name in ("clipping_range", "max_weight"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise FedwiseError(f"{name} must be a finite number above 0, got {value}")


class Introduce(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="introduce"):
    """Second request: everybody's public keys."""

    roster: dict[int, tuple[bytes, bytes]]


class Collect(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="collect"):
    """Third request, beside the strategy's content: the sealed shares the others made for this client."""

    sealed: dict[int, bytes]


class Unmask(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="unmask"):
    """Last request: whose masked vectors are in the sum.

    Each client decides itself which secret of whom follows from that: the seed of a survivor, the key of
    anybody else. A request for both secrets of one client cannot be written.
    """

    survivors: list[int]


class Keys(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="keys"):
    """First answer: public keys, made for this round."""

    mask: bytes
    channel: bytes


class Shares(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="shares"):
    """Second answer: a sealed share for every other client."""

    sealed: dict[int, bytes]


class Masked(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="masked"):
    """Third answer: the masked words, and the names of the metrics in an evaluation."""

    words: bytes
    names: tuple[str, ...] = ()


class Opened(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="opened"):
    """Last answer: one share of one secret of each client."""

    shares: dict[int, bytes]


Request = Setup | Introduce | Collect | Unmask
Answer = Keys | Shares | Masked | Opened


def write(message: Request | Answer) -> ConfigRecord:
    """A protocol message as a Flower record."""
    return ConfigRecord({_FIELD: msgspec.msgpack.encode(message)})


def read_request(content: RecordDict) -> Request | None:
    """The request in a message, or None when there is none that can be read."""
    found: Request | None = _read(content, Request)
    return found


def read_answer(content: RecordDict) -> Answer | None:
    """The answer in a message, or None when there is none that can be read."""
    found: Answer | None = _read(content, Answer)
    return found


def roster_digest(kind: str, terms: Setup, roster: Roster) -> bytes:
    """What every client of a round must agree on before it shares a key."""
    people = [(node, *roster[node]) for node in sorted(roster)]
    return hashlib.sha256(msgspec.msgpack.encode((kind, terms, people))).digest()


def content_digest(roster: bytes, content: RecordDict) -> bytes:
    """The cohort and everything the strategy sent.

    It enters every mask. A server that sends one client other parameters than the rest, to see its update
    alone in the sum, gets noise.
    """
    hasher = hashlib.sha256(roster)
    for name in sorted(content):
        if name == RECORD:
            continue
        record = content[name]
        _feed(hasher, type(record).__name__, name)
        for key in sorted(record):
            value = record[key]
            if isinstance(record, ArrayRecord):
                _feed(hasher, key, value.dtype, str(tuple(value.shape)), value.stype)
                hasher.update(hashlib.sha256(value.data).digest())
            else:
                _feed(hasher, key, repr(value))
    return hasher.digest()


def _feed(hasher: hashlib._Hash, *parts: str) -> None:
    """Texts with their lengths, so that no two lists of texts are fed alike."""
    for part in parts:
        data = part.encode()
        hasher.update(len(data).to_bytes(8, "little") + data)


def _read(content: RecordDict, kind: Any) -> Any:
    if RECORD not in content.config_records:
        return None
    found = content.config_records[RECORD].get(_FIELD)
    try:
        return msgspec.msgpack.decode(found, type=kind) if isinstance(found, bytes) else None
    except (msgspec.MsgspecError, ValueError, RecursionError):  # text that is no UTF-8 is a ValueError
        return None
