"""The promise: stated as kept only for real noise, and never beyond what it covers."""

from __future__ import annotations

import math

import msgspec
import pytest

import fedwise as fw
from fedwise.pool.pool import Pool
from fedwise.search.selection import Selection
from fedwise.view.labels import TRAINING, Label
from fedwise.view.promise import Promise, TrainingPrivacy, promise_of


def real(pool: fw.Pool) -> Pool:
    """The same pool as if its noise were real."""
    return Pool(pool.clients, pool.plan, pool.matrix)


def unmarked(selection: Selection, *flags: str) -> Selection:
    return msgspec.structs.replace(selection, flags=flags)


def claims(found: Promise) -> bool:
    """Whether it says that the promise holds."""
    return "It holds whatever the reader already knows" in found.relation


def test_only_real_noise_keeps_the_promise(pool: fw.Pool, selection: Selection) -> None:
    kept = promise_of(real(pool), unmarked(selection))
    assert claims(kept)
    assert kept.promise == pool.plan.promise
    assert any("exact count" in line for line in kept.stayed)
    for found in (
        promise_of(pool),
        promise_of(real(pool), unmarked(selection, "simulated: seeded")),
        promise_of(real(pool), unmarked(selection, "not private: exact")),
        promise_of(None, unmarked(selection), plan=pool.plan),
        promise_of(None, unmarked(selection)),
    ):
        assert found.label != "private"
        assert not claims(found)
        assert found.promise != pool.plan.promise
        assert not any("exact count" in line for line in found.stayed)


def test_a_plan_without_releases_is_a_request_not_a_promise(pool: fw.Pool, selection: Selection) -> None:
    found = promise_of(None, unmarked(selection), plan=pool.plan)
    assert (found.epsilon, found.tables) == (1.0, len(pool.plan.tables))
    assert "not checked" in " ".join(found.left)
    assert found.stayed == []


def test_exact_counts_at_hand_and_private_ones_named(pool: fw.Pool, selection: Selection) -> None:
    """The selection was made from exact counts, and someone names a private pool beside it."""
    found = promise_of(real(pool), unmarked(selection, "not private: exact"))
    assert "made from exact counts" in found.promise
    assert "exact counts" in found.left[0]


def test_unknown_numbers_are_none(selection: Selection) -> None:
    silent = promise_of(None, unmarked(selection))
    assert (silent.epsilon, silent.delta, silent.tables, silent.left) == (None, None, 0, [])
    exact = promise_of(None, unmarked(selection, "not private: exact"))
    assert exact.epsilon == "inf"
    assert promise_of(None, unmarked(selection, "simulated: seeded")).epsilon is None


def test_exact_pool(small_schema: fw.Schema, pool: fw.Pool) -> None:
    exact = Pool(pool.clients, fw.plan(small_schema, math.inf), pool.matrix)
    found = promise_of(exact)
    assert (found.label, found.epsilon, found.noise_most) == ("not private", "inf", 0.0)
    assert found.promise.startswith("NO PRIVACY")


@pytest.mark.parametrize("label", ["private", "simulated", "not private", "not checked"])
def test_training_is_outside_the_promise(pool: fw.Pool, selection: Selection, label: Label) -> None:
    training = TrainingPrivacy(label=label, notes=["Clients chosen: ε at most 2."])
    found = promise_of(real(pool), unmarked(selection), training=training)
    assert found.label == "private"
    assert found.training_label == label
    assert "this page included" not in found.relation
    assert "does not cover the training" in found.relation
    assert found.training[-1] == "Clients chosen: ε at most 2."
    assert (TRAINING[label] in found.training) is (label != "private")
    assert TrainingPrivacy(label=label).sentences == [TRAINING[label]]
