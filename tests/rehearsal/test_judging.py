"""Judges: metrics by chances are the expectation of metrics by labels."""

from __future__ import annotations

import numpy as np
import pytest

from fedwise.rehearsal.judging import GroupRates, Judges, mean_rates, of_the_whole
from fedwise.training.encoding import Rows
from fedwise.training.metrics import measure_scores


def judges(chance: np.ndarray, groups: np.ndarray) -> Judges:
    n = len(chance)
    rows = Rows(
        1, np.zeros((n, 1), np.int32), np.zeros((n, 0), np.float32), np.zeros(0, np.int64), np.zeros(n, np.float32),
        groups.reshape(1, n).astype(np.int16),
    )  # fmt: skip
    return Judges(rows, chance, ("SEX",), (("man", "woman"),))


def test_certain_labels_give_the_metrics_of_training() -> None:
    rng = np.random.default_rng(3)
    scores, labels, group = rng.normal(size=900), rng.integers(0, 2, 900), rng.integers(0, 2, 900)
    scores = scores.astype(np.float32) + labels.astype(np.float32)
    found, _ = judges(labels.astype(float), group).measure(scores)
    wanted = measure_scores(scores, labels, {"SEX": group})
    assert set(wanted) <= set(found)
    for name, value in wanted.items():
        assert found[name] == pytest.approx(value, abs=1e-9), name


def test_chances_give_the_expectation_over_drawn_labels() -> None:
    rng = np.random.default_rng(4)
    n = 400
    scores, group = rng.normal(size=n).astype(np.float32), rng.integers(0, 2, n)
    chance = 1 / (1 + np.exp(-scores - 0.5 * group))
    found, _ = judges(chance, group).measure(scores)
    drawn = [measure_scores(scores, rng.random(n) < chance, {"SEX": group}) for _ in range(400)]
    # 4 standard errors of the mean over draws; expectations of ratios differ by less than that here.
    for name in ("loss", "auc", "accuracy", "recall"):
        values = np.array([one[name] for one in drawn])
        assert abs(found[name] - values.mean()) < 4 * values.std() / 20 + 1e-3, name


def test_rates_of_groups_explain_the_gaps() -> None:
    rng = np.random.default_rng(5)
    scores, group = rng.normal(size=500).astype(np.float32), rng.integers(0, 2, 500)
    found, rates = judges(rng.random(500), group).measure(scores)
    by = {(g.level, g.threshold): g for g in rates}
    assert by["man", ""].share + by["woman", ""].share == pytest.approx(1.0)
    for threshold, suffix in (("", ""), ("rate", "@rate")):
        gap = abs(by["man", threshold].recall - by["woman", threshold].recall)
        assert found[f"eod:SEX{suffix}"] == pytest.approx(gap)
    mean = mean_rates([rates, rates])
    assert mean[0] == GroupRates(*(getattr(rates[0], name) for name in GroupRates.__struct_fields__))


def test_a_model_of_the_whole_release_has_learnt_half_the_noise() -> None:
    for signal, noise in ((1.0, 0.0), (1.0, 0.2), (0.3, 3.0)):
        half, whole = signal / (signal + 2 * noise), signal / (signal + noise)
        assert of_the_whole(half) == pytest.approx(whole)
