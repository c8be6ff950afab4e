"""Wire: the two records that travel in the release phase, and nothing else."""

from __future__ import annotations

from typing import Any

from flwr.app import ConfigRecord, Message, RecordDict

from .. import __version__
from ..owner.policy import Refusal

#: Version of the exchange below; a node that speaks another one is left out, not guessed at.
PROTOCOL = 1
ACTION = "fedwise_release"
#: Flower routes this type to ``@app.query("fedwise_release")``.
MESSAGE_TYPE = f"query.{ACTION}"
_RECORD = "fedwise"


def request(plan: bytes) -> RecordDict:
    """What the server sends to every node: the plan, public JSON."""
    return RecordDict({_RECORD: ConfigRecord({"protocol": PROTOCOL, "plan": plan})})


def read_request(message: Message) -> bytes | None:
    """The plan's bytes, or None when the message is no request of this protocol."""
    record = _record(message)
    plan = record.get("plan")
    return plan if record.get("protocol") == PROTOCOL and isinstance(plan, bytes) else None


def released(release: bytes) -> RecordDict:
    """A node's answer: its release file, byte for byte what `fedwise release` would write."""
    return _answer({"status": "released", "release": release})


def declined(refusal: Refusal) -> RecordDict:
    """A node's refusal: one word from a fixed list."""
    return _answer({"status": "declined", "code": str(refusal)})


def read_answer(message: Message) -> bytes | Refusal | None:
    """The release, the refusal, or None for an answer of another protocol."""
    record = _record(message)
    if record.get("protocol") != PROTOCOL:
        return None
    if record.get("status") == "released":
        found = record.get("release")
        return found if isinstance(found, bytes) else None
    try:
        # Only words of the list are repeated: whatever else a node wrote is not shown to anybody.
        return Refusal(str(record.get("code")))
    except ValueError:
        return None


def _answer(fields: dict[str, Any]) -> RecordDict:
    return RecordDict({_RECORD: ConfigRecord({"protocol": PROTOCOL, "library": __version__, **fields})})


def _record(message: Message) -> dict[str, Any]:
    if not message.has_content() or _RECORD not in message.content.config_records:
        return {}
    return dict(message.content.config_records[_RECORD])
