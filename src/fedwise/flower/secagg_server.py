"""The server's part of secure aggregation: one round from the exchange of keys to the sum."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import numpy as np
from flwr.app import Message, RecordDict
from flwr.common.secure_aggregation.crypto.shamir import combine_shares
from flwr.serverapp import Grid

from ..errors import FedwiseError
from . import masks
from .masks import Words
from .quantisation import Total
from .secagg_wire import (
    RECORD,
    Collect,
    Introduce,
    Keys,
    Masked,
    Opened,
    Request,
    Setup,
    Shares,
    Unmask,
    content_digest,
    read_answer,
    roster_digest,
    write,
)

_LOG = logging.getLogger("flwr")
_BAD_SHARES = (
    "secure aggregation got shares that do not fit together; restart the round without the faulty client"
)
_A = TypeVar("_A", Keys, Shares, Masked, Opened)


class Stopped(Exception):
    """Too few clients answered a stage (numbered from 0)."""

    def __init__(self, stage: int, active: Iterable[int]) -> None:
        super().__init__()
        self.stage, self.active = stage, set(active)


class Round:
    """One run of the protocol.

    Parameters
    ----------
    grid
        Where messages go.
    kind
        ``train`` or ``evaluate``: the type of all messages.
    content
        What the strategy sends, the same to everybody.
    nodes, terms
        The cohort, and what it is asked to agree to.
    number, timeout
        The round's number, and seconds for each stage.
    """

    def __init__(
        self,
        grid: Grid,
        kind: str,
        content: RecordDict,
        *,
        nodes: Iterable[int],
        terms: Setup,
        number: int,
        timeout: float | None,
    ) -> None:
        self.grid, self.kind, self.content = grid, kind, content
        self.nodes, self.terms = sorted(nodes), terms
        self.number, self.timeout = number, timeout

    def run(self) -> tuple[tuple[str, ...], Total]:
        """Names of the metrics (none for updates), and what the sum says.

        Raises
        ------
        Stopped
            Too few clients answered.
        """
        keys = self._ask(dict.fromkeys(self.nodes, self.terms), Keys)
        if len(keys) < len(self.nodes):
            raise Stopped(0, keys)
        roster = {node: (answer.mask, answer.channel) for node, answer in keys.items()}
        shares = self._ask(dict.fromkeys(self.nodes, Introduce(roster)), Shares)
        shares = {node: found for node, found in shares.items() if {*found.sealed, node} == set(roster)}
        if len(shares) < len(self.nodes):
            raise Stopped(1, shares)
        names, words = self._collect(shares)
        if len(words) < self.terms.threshold:
            raise Stopped(2, words)
        opened = self._ask({node: Unmask(sorted(words)) for node in words}, Opened)
        if len(opened) < self.terms.threshold:
            raise Stopped(3, opened)
        transcript = content_digest(roster_digest(self.kind, self.terms, roster), self.content)
        total = _unmask(words, opened, roster, transcript)
        return names, self.terms.quantiser(self.kind).decode(total)

    def _collect(self, shares: Mapping[int, Shares]) -> tuple[tuple[str, ...], dict[int, Words]]:
        """Masked vectors of all who sent one of the right size."""
        requests = {
            node: Collect(
                {sender: answer.sealed[node] for sender, answer in shares.items() if sender != node}
            )
            for node in self.nodes
        }
        found = self._ask(requests, Masked, self.content)
        if not found:
            return (), {}
        names = Counter(answer.names for answer in found.values()).most_common(1)[0][0]
        quantiser = self.terms.quantiser(self.kind)
        values = len(names)
        if self.kind == "train":
            values = sum(int(np.prod(array.shape)) for array in self.content.array_records["arrays"].values())
        kind = np.dtype(quantiser.dtype)
        length = quantiser.size(values) * kind.itemsize
        words = {
            node: np.frombuffer(answer.words, dtype=kind.newbyteorder("<")).astype(kind)
            for node, answer in found.items()
            if answer.names == names and len(answer.words) == length
        }
        for node in sorted(set(found) - set(words)):
            _LOG.warning("fedwise: node %d sent a vector unlike the others'; it is left out of the sum", node)
        return names, words

    def _ask(
        self, requests: Mapping[int, Request], kind: type[_A], content: RecordDict | None = None
    ) -> dict[int, _A]:
        """Send each node its request, and read the answers that are answers."""
        messages = []
        for node, request in requests.items():
            records: dict[str, Any] = dict(content) if content is not None else {}
            records[RECORD] = write(request)
            messages.append(Message(RecordDict(records), node, self.kind, group_id=str(self.number)))
        out: dict[int, _A] = {}
        for reply in self.grid.send_and_receive(messages, timeout=self.timeout):
            answer = None if reply.has_error() else read_answer(reply.content)
            if isinstance(answer, kind) and reply.metadata.src_node_id in requests:
                out[reply.metadata.src_node_id] = answer
        return out


def _unmask(
    words: Mapping[int, Words],
    opened: Mapping[int, Opened],
    roster: Mapping[int, tuple[bytes, bytes]],
    transcript: bytes,
) -> Words:
    """The sum of the vectors, without the survivors' own masks and the masks they share with the lost."""
    total: Words = np.add.reduce(list(words.values()), dtype=next(iter(words.values())).dtype)
    masker = masks.Masker(transcript, len(total), total.dtype)
    for node in roster:
        secret = _combine([answer.shares[node] for answer in opened.values() if node in answer.shares])
        if node in words:
            total = total - masker.own(secret, node)
            continue
        if masks.public_of(secret) != roster[node][0]:
            raise FedwiseError(_BAD_SHARES)
        for other in words:
            total = total - masker.pair(masks.agree(secret, roster[other][0]), other, node)
    return total


def _combine(shares: list[bytes]) -> bytes:
    try:
        secret = bytes(combine_shares(shares))
    except (ValueError, IndexError):
        raise FedwiseError(_BAD_SHARES) from None
    if len(secret) != 32:
        raise FedwiseError(_BAD_SHARES)
    return secret
