"""Dirty pools: dirt does what it says, to tables and training rows alike, and what the loss can see of it."""

from __future__ import annotations

import broken
import census
import numpy as np
import pytest

import fedwise as fw
from fedwise.objective.pfl import terms

pytest.importorskip("fairlearn", reason="needs fairlearn")


@pytest.fixture(scope="module")
def client() -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    rng = np.random.default_rng(0)
    return rng.integers(0, 4, (2000, 3)), rng.integers(0, 2, 2000), rng.integers(0, 2, 2000)


def test_labels_are_inverted_or_shuffled(client: tuple) -> None:  # type: ignore[type-arg]
    x, y, s = client
    assert (broken.flipped(x, y, s, np.random.default_rng(1))[1] == 1 - y).all()
    mixed = broken.shuffled(x, y, s, np.random.default_rng(1))[1]
    assert mixed.sum() == y.sum()
    assert abs(np.corrcoef(mixed, y)[0, 1]) < 0.1


def test_positives_of_one_group_are_erased(client: tuple) -> None:  # type: ignore[type-arg]
    x, y, s = client
    left = broken.erased(x, y, s, np.random.default_rng(1))[1]
    assert (left[s == 0] == y[s == 0]).all()
    assert left[s == 1].sum() == pytest.approx(0.3 * y[s == 1].sum(), rel=0.15)
    assert (left <= y).all()


def test_features_are_shuffled_one_by_one(client: tuple) -> None:  # type: ignore[type-arg]
    x, y, s = client
    mixed = broken.scrambled(np.stack([x[:, 0], x[:, 0]], axis=1), y, s, np.random.default_rng(1))[0]
    assert (np.sort(mixed, axis=0) == np.sort(x[:, [0, 0]], axis=0)).all()
    assert abs(np.corrcoef(mixed.T)[0, 1]) < 0.1


def test_choosing_avoids_shuffled_labels() -> None:
    pytest.importorskip("safetensors", reason="needs the train extra")
    rows = broken.evaluate(
        "synthetic", "labels shuffled", 0, draws=1, random=3, k=3, mean_rows=300, test_rows=2000, states=12
    )
    by_kind = {row["kind"]: row for row in rows}
    assert by_kind["all"]["dirty"] == pytest.approx(4 / 12)
    assert by_kind["clean"]["dirty"] == 0
    assert by_kind["pfl"]["dirty"] == 0
    assert by_kind["clean"]["loss"] < by_kind["all"]["loss"]  # type: ignore[operator]
    assert by_kind["all"]["auc"] == by_kind["all_threshold_optimizer_tpr"]["auc"]
    assert {row["draw"] for row in rows if row["kind"] == "random"} == {0, 1, 2}


def test_loss_cannot_tell_an_inverted_label() -> None:
    """Mutual information is the same after the labels of *all* members are inverted: a limit, not a defect."""
    clean = census.load("synthetic", mean_rows=300, test_rows=2000, states=4).sex
    frames = census.training_frames("synthetic", states=4)
    rng = np.random.default_rng(0)
    losses = []
    for who in (set(), set(clean.clients), {clean.clients[0]}):
        tabled = broken.with_dirt(frames, clean, who, broken.flipped, rng)
        losses.append(terms(tabled.truth(), [0, 1, 2, 3]).loss(fw.Weights()))
    assert losses[1] == pytest.approx(losses[0])
    assert losses[2] > losses[0]
