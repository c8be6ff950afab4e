"""What travels in secure aggregation: hostile bytes are no message, and the digest covers all that is sent."""

from __future__ import annotations

import msgspec
import numpy as np
from flwr.app import ConfigRecord, MetricRecord, RecordDict
from hypothesis import given
from hypothesis import strategies as st

from fedwise.flower.secagg_wire import (
    RECORD,
    Collect,
    Introduce,
    Setup,
    Unmask,
    content_digest,
    read_answer,
    read_request,
    roster_digest,
)
from flower.secagg_kit import parameters


@given(st.binary(max_size=200), st.integers(0, 3))
def test_hostile_bytes_are_no_message(data, cut):
    """Whatever comes is read or refused; nothing is raised."""
    seeds = [Setup(3, 2, 1.0, 1.0), Introduce({1: (b"a", b"b")}), Collect({1: b"x"}), Unmask([1, 2])]
    whole = msgspec.msgpack.encode(seeds[cut])
    for text in (data, whole[: len(data)] + data, data + whole, whole + data[:1]):
        for read in (read_request, read_answer):
            found = read(RecordDict({RECORD: ConfigRecord({"message": text})}))
            assert found is None or text == whole or isinstance(found, msgspec.Struct)
    assert read_request(RecordDict({RECORD: ConfigRecord({"message": whole})})) == seeds[cut]
    assert read_answer(RecordDict({RECORD: ConfigRecord({"message": whole})})) is None


def test_everything_the_strategy_sends_is_in_the_digest():
    def changed(change):
        content = parameters()
        change(content)
        return content_digest(b"", content)

    arrays = lambda content: content.array_records["arrays"]  # noqa: E731
    config = lambda content: content.config_records["config"]  # noqa: E731
    found = [
        changed(lambda content: None),
        changed(lambda content: arrays(content).pop("b")),
        changed(lambda content: arrays(content).update(more=arrays(content)["b"])),
        changed(lambda content: arrays(content).update(b=type(arrays(content)["b"])(np.zeros(3)))),
        changed(lambda content: arrays(content).update(b=type(arrays(content)["b"])(np.ones(3, np.float32)))),
        changed(lambda content: config(content).update({"server-round": 2})),
        changed(lambda content: config(content).update({"server-round": 1.0})),
        changed(lambda content: config(content).update(other="")),
        changed(lambda content: content.update(second=ConfigRecord())),
        changed(lambda content: content.update(second=MetricRecord())),
    ]
    assert len(set(found)) == len(found)
    assert changed(lambda content: content.update({RECORD: ConfigRecord({"a": 1})})) == found[0]


def test_the_cohort_the_terms_and_the_purpose_are_in_the_digest():
    terms, roster = Setup(3, 2, 1.0, 1.0), {1: (b"a", b"b"), 2: (b"c", b"d")}
    found = {
        roster_digest("train", terms, roster),
        roster_digest("evaluate", terms, roster),
        roster_digest("train", Setup(3, 3, 1.0, 1.0), roster),
        roster_digest("train", Setup(3, 2, 2.0, 1.0), roster),
        roster_digest("train", terms, {**roster, 3: (b"e", b"f")}),
        roster_digest("train", terms, {1: (b"b", b"a"), 2: (b"c", b"d")}),
        roster_digest("train", terms, {1: (b"ab", b""), 2: (b"c", b"d")}),
        roster_digest("train", terms, {2: (b"a", b"b"), 1: (b"c", b"d")}),
    }
    assert len(found) == 8
    assert roster_digest("train", terms, dict(reversed(roster.items()))) in found
