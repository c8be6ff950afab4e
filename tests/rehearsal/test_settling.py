"""Settling: rehearsed models have on their own records the label rate of these, but for what is no chance."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

import fedwise as fw
from fedwise.rehearsal.judging import corrected, shifted
from fedwise.rehearsal.settling import STRAY, offset, settled
from fedwise.training.encoding import Rows
from fedwise.training.local import predict
from fedwise.training.model import Model
from fedwise.training.ranking import probability
from fedwise.training.task import Task


def _world(n: int = 40_000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Scores of a model that has learnt, and labels by their chances."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(-0.6, 1.3, n).astype(np.float32)
    return scores, (rng.random(n) < probability(scores)).astype(np.float32)


@pytest.mark.parametrize("moved", [-0.02, 0.0, 0.02])
def test_a_chance_offset_is_taken_out(moved: float) -> None:
    scores, labels = _world()
    settled_scores = scores + moved + offset(scores + np.float32(moved), labels)
    assert probability(settled_scores).mean() == pytest.approx(labels.mean(), abs=1e-5)


@pytest.mark.parametrize("moved", [-0.9, 0.9])
def test_what_is_no_chance_stays(moved: float) -> None:
    scores, labels = _world()
    far = scores + np.float32(moved)
    after = probability(far + offset(far, labels)).mean()
    # Nearer by STRAY, and no more.
    assert abs(after - probability(far).mean()) == pytest.approx(STRAY, abs=1e-4)
    assert abs(after - labels.mean()) < abs(probability(far).mean() - labels.mean())


def _rows(n: int, labels: np.ndarray) -> Rows:
    rng = np.random.default_rng(1)
    return Rows(
        2, rng.integers(0, 2, (n, 1)).astype(np.int32), np.zeros((n, 0), np.float32), np.zeros(0, np.int64), labels,
        np.zeros((1, n), np.int16),
    )  # fmt: skip


def test_noise_in_training_and_other_tasks_are_left_alone() -> None:
    labels = (np.random.default_rng(2).random(500) < 0.4).astype(np.float32)
    rows, config = _rows(500, labels), fw.Training(rounds=1).config()
    model = Model.named("logistic", 2)
    parameters = model.initial(3)
    plain = predict(model, parameters, rows, engine=config.engine)
    moved = settled(model, parameters, rows, config)(rows)
    assert np.unique(np.round(moved - plain, 5)).size == 1
    assert not np.array_equal(moved, plain)
    private = fw.Training(rounds=1, epsilon=1.0, seed=0).config()
    np.testing.assert_array_equal(settled(model, parameters, rows, private)(rows), plain)
    number = Model.named("logistic", 2, Task("number"))
    other = msgspec.structs.replace(config, engine="auto")
    np.testing.assert_array_equal(
        settled(number, number.initial(3), rows, other)(rows),
        predict(number, number.initial(3), rows, engine=config.engine),
    )


def test_scores_are_moved_to_a_rate() -> None:
    scores, _ = _world()
    for rate in (0.02, 0.3, 0.9):
        assert probability(shifted(scores, rate)).mean() == pytest.approx(rate, abs=1e-6)
    # Where hardly anybody's label is open the move is large, and found all the same.
    certain = np.array([-30.0, -28.0, 25.0, 40.0])
    assert probability(shifted(certain, 0.3)).mean() == pytest.approx(0.3, abs=1e-4)


def test_scores_drawn_together_keep_their_mean_chance() -> None:
    scores, _ = _world()
    certain = np.concatenate([scores, np.full(200, -20.0, np.float32)])
    found = corrected(certain, 0.8)
    assert probability(found).mean() == pytest.approx(probability(certain).mean(), abs=1e-6)
    assert np.std(found) == pytest.approx(0.8 * np.std(certain), rel=1e-5)
    assert (np.diff(found[np.argsort(certain)]) > -1e-6).all()
    assert corrected(certain, 1.0) is certain
