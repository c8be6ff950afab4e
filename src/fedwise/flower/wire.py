"""Wire: the record that carries an envelope of the release phase in a Flower message, and nothing else."""

from __future__ import annotations

from flwr.app import ConfigRecord, Message, RecordDict

from ..owner import envelope
from ..owner.policy import Refusal

ACTION = "fedwise_release"
#: Flower routes this type to ``@app.query("fedwise_release")``.
MESSAGE_TYPE = f"query.{ACTION}"
_RECORD, _FIELD = "fedwise", "envelope"


def carry(content: bytes) -> RecordDict:
    """An envelope as the content of a message."""
    return RecordDict({_RECORD: ConfigRecord({_FIELD: content})})


def unwrap(message: Message) -> bytes | None:
    """The envelope in a message, or None where there is none."""
    if not message.has_content() or _RECORD not in message.content.config_records:
        return None
    found = message.content.config_records[_RECORD].get(_FIELD)
    return found if isinstance(found, bytes) else None


def request(plan: bytes) -> RecordDict:
    """What the server sends to every node."""
    return carry(envelope.request(plan))


def released(release: bytes) -> RecordDict:
    """A node's answer: its release file."""
    return carry(envelope.released(release))


def read_answer(message: Message) -> bytes | Refusal | None:
    """The release, the refusal, or None for an answer of another protocol."""
    found = envelope.read_answer(unwrap(message) or b"")
    return None if found is None else found.release if found.refusal is None else found.refusal
