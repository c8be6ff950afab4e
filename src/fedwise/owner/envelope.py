"""Envelope: the bytes that travel between a coordinator and a node in the release phase, whatever engine carries them.

A request holds a plan, an answer holds a release or one word of refusal. Both are JSON that a person can read.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import msgspec

from .. import __version__
from ..errors import ReleaseError
from .policy import Refusal
from .release import check_client
from .score import Score

#: Version of the exchange; a node that speaks another one is left out, not guessed at.
PROTOCOL = 2
T = TypeVar("T")


class _Request(msgspec.Struct, frozen=True, omit_defaults=True):
    protocol: int
    plan: msgspec.Raw
    stage: int = 1
    score: Score | None = None


class _Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    protocol: int
    library: str = ""
    status: str = ""
    release: msgspec.Raw = msgspec.Raw()
    code: str = ""
    client: str = ""
    data_version: int | None = None


class Answer(NamedTuple):
    """What a node said: a release file, byte for byte what `fedwise release` would write, or a refusal."""

    release: bytes | None
    refusal: Refusal | None
    #: Public name of a client that declined, where its owner lets it be told.
    client: str | None = None
    #: The owner's number of the data as it is now; a release made from an older one carries a smaller number.
    data_version: int | None = None


def request(plan: bytes, *, stage: int = 1, score: Score | None = None) -> bytes:
    """What a coordinator sends: the plan, public JSON, which stage of it is asked, and what that scores by."""
    return msgspec.json.encode(_Request(PROTOCOL, msgspec.Raw(plan), stage, score))


def read_request(data: bytes) -> bytes | None:
    """The plan's bytes, or None when this is no request of this protocol."""
    found = _read(data, _Request)
    return bytes(found.plan) if found is not None and found.protocol == PROTOCOL else None


def read_stage(data: bytes) -> tuple[int, Score | None]:
    """Which stage of the plan a request asks for, and what that scores by."""
    found = _read(data, _Request)
    return (1, None) if found is None else (found.stage, found.score)


def released(release: bytes, *, data_version: int | None = None) -> bytes:
    """A node's answer: its release, and the number of its data now where the owner keeps one."""
    raw = msgspec.Raw(release)
    return msgspec.json.encode(
        _Answer(PROTOCOL, __version__, "released", release=raw, data_version=data_version)
    )


def declined(refusal: Refusal, *, client: str = "") -> bytes:
    """A node's refusal: one word from a fixed list, and the client's name where the owner lets it be told."""
    return msgspec.json.encode(_Answer(PROTOCOL, __version__, "declined", code=str(refusal), client=client))


def read_answer(data: bytes) -> Answer | None:
    """The release or the refusal, or None for an answer of another protocol."""
    found = _read(data, _Answer)
    if found is None or found.protocol != PROTOCOL:
        return None
    if found.status == "released":
        raw = bytes(found.release)
        return Answer(raw, None, data_version=found.data_version) if raw else None
    try:
        # Only words of the list are repeated: whatever else a node wrote is not shown to anybody.
        return Answer(None, Refusal(found.code), _name(found.client))
    except ValueError:
        return None


def _name(client: str) -> str | None:
    """A name that is safe to show, or None."""
    try:
        check_client(client)
    except ReleaseError:
        return None
    return client


def _read(data: bytes, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None
