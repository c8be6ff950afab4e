"""Thresholds other than ½, calibration and the pure functions, against explicit enumeration."""

import math
from itertools import product

import numpy as np
import pytest
import sklearn.metrics as sk

from fedwise.errors import FedwiseError
from fedwise.objective.metric import DECISIONS, GAPS
from fedwise.training import metrics
from fedwise.training.ranking import Ranking, decide, probability


def _data(seed: int, count: int = 40, digits: int = 1):
    rng = np.random.default_rng(seed)
    y = (rng.random(count) < 0.4).astype(np.float32)
    scores = np.round(rng.normal(size=count) + y - 0.5, digits).astype(np.float32)
    return scores, y, {"S": rng.integers(0, 2, count), "R": rng.integers(0, 3, count)}


def _expected(scores, y, group, wanted: float) -> dict[str, float]:
    """Go down the scores one distinct value at a time; the last one gets what is left, in equal parts."""
    says = np.zeros(len(y))
    for value in sorted(set(scores.tolist()), reverse=True):
        tied = scores == np.float32(value)
        left = wanted - says.sum()
        says[tied] = min(1.0, max(0.0, left / tied.sum()))
    tp, fp = float((says * y).sum()), float((says * (1 - y)).sum())
    positives, negatives = float(y.sum()), float((1 - y).sum())
    rate = [says[group == g].mean() for g in np.unique(group)]
    true = [says[(group == g) & (y == 1)].mean() for g in np.unique(group)]
    false = [says[(group == g) & (y == 0)].mean() for g in np.unique(group)]
    right = [np.where(y == 1, says, 1 - says)[group == g].mean() for g in np.unique(group)]
    return {
        "accuracy": (tp + negatives - fp) / len(y),
        "balanced_accuracy": (tp / positives + 1 - fp / negatives) / 2,
        "precision": tp / (tp + fp),
        "recall": tp / positives,
        "f1": 2 * tp / (tp + fp + positives),
        "positive_rate": (tp + fp) / len(y),
        "spd": max(rate) - min(rate),
        "eod": max(true) - min(true),
        "mad": max(right) - min(right),
        "equalised_odds": max(max(true) - min(true), max(false) - min(false)),
    }


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("digits", [0, 1, 6], ids=["few scores", "some ties", "no ties"])
@pytest.mark.parametrize("rate", [None, 0.13])
def test_rate_matched_metrics_are_those_of_explicit_decisions(
    seed: int, digits: int, rate: float | None
) -> None:
    scores, y, groups = _data(seed, digits=digits)
    found = metrics.measure_scores(scores, y, groups, rate=rate)
    wanted = y.sum() if rate is None else rate * len(y)
    for attribute, group in groups.items():
        for name, value in _expected(scores, y, group, wanted).items():
            key = f"{name}:{attribute}@rate" if name in GAPS else f"{name}@rate"
            assert found[key] == pytest.approx(value, abs=1e-12), key


def test_expected_rates_are_the_mean_over_every_way_to_break_the_tie() -> None:
    """Two of three tied rows are decided yes: the mean over the three ways is what is reported."""
    scores = np.array([2, 1, 1, 1, 0, 0], np.float32)
    y = np.array([1, 1, 0, 1, 0, 0])
    group = np.array([0, 0, 1, 1, 0, 1])
    found = metrics.measure_scores(scores, y, {"S": group})
    ways = [np.array([1, *way, 0, 0]) for way in product([0, 1], repeat=3) if sum(way) == 2]
    assert len(ways) == 3
    for name in DECISIONS:
        every = [metrics.measure_decisions(way, y, {"S": group})[name] for way in ways]
        assert found[f"{name}@rate"] == pytest.approx(np.mean(every)), name
    signed = [metrics.measure_decisions(way, y, {"S": group})["eod_signed:S"] for way in ways]
    assert found["eod_signed:S@rate"] == pytest.approx(np.mean(signed))


@pytest.mark.parametrize("seed", range(6))
def test_predicted_positives_match_the_labels_exactly(seed: int) -> None:
    scores, y, _ = _data(seed, 1_000, digits=seed % 3)
    ranking = Ranking.of(scores, y > 0.5)
    assert decide(scores, *ranking.matched()).sum() == pytest.approx(y.sum(), abs=1e-9)
    for rate in (0.0, 0.2, 1.0):
        assert decide(scores, *ranking.matched(rate)).sum() == pytest.approx(rate * len(y), abs=1e-9)


def test_a_shift_of_all_scores_moves_only_the_metrics_at_one_half() -> None:
    scores, y, groups = _data(3, 500, digits=2)
    before = metrics.measure_scores(scores, y, groups)
    after = metrics.measure_scores(scores + np.float32(4), y, groups)
    assert {name for name in before if "@rate" in name} < set(after)
    for name, value in before.items():
        if "@rate" in name or name == "auc":
            assert after[name] == pytest.approx(value, nan_ok=True), name
    assert after["balanced_accuracy"] < before["balanced_accuracy"] - 0.1


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("digits", [0, 2])
def test_the_best_threshold_beats_every_other(seed: int, digits: int) -> None:
    scores, y, _ = _data(seed, digits=digits)
    best = metrics.best_threshold(scores, y)
    reached = sk.balanced_accuracy_score(y, decide(scores, best))
    cuts = [-np.inf, *np.unique(scores)]
    every = [sk.balanced_accuracy_score(y, scores > cut) for cut in cuts]
    assert reached == pytest.approx(max(every))
    lowest = cuts[int(np.argmax(np.round(every, 12)))]
    assert ((scores > lowest) == decide(scores, best)).all()


def test_best_thresholds_at_the_edges() -> None:
    assert math.isnan(metrics.best_threshold(np.array([1.0, 2.0], np.float32), np.array([1, 1])))
    assert math.isnan(metrics.best_threshold(np.zeros(0, np.float32), np.zeros(0)))
    # The wrong way round: nothing beats deciding yes for all.
    assert metrics.best_threshold(np.array([1.0, 2.0], np.float32), np.array([1, 0])) == -math.inf
    # Between two float32 numbers that are neighbours.
    low = np.float32(0.3)
    scores = np.array([low, np.nextafter(low, np.float32(1))])
    assert decide(scores, metrics.best_threshold(scores, np.array([0, 1]))).tolist() == [False, True]
    found = metrics.measure_scores(scores, np.array([0, 1]), {}, best=math.nan)
    assert not any(name.endswith("@best") for name in found)


@pytest.mark.parametrize("seed", range(4))
def test_brier_and_calibration(seed: int) -> None:
    scores, y, groups = _data(seed, 200, digits=6)
    found = metrics.measure_scores(scores, y, groups)
    p = probability(scores)
    assert found["brier"] == pytest.approx(sk.brier_score_loss(y, p))
    bins = np.array_split(np.argsort(scores), 10)  # 20 rows each, no ties
    by_hand = sum(len(b) * abs(y[b].mean() - p[b].mean()) for b in bins) / len(y)
    assert found["calibration_error"] == pytest.approx(by_hand)


def test_calibration_error_does_not_depend_on_the_order_of_tied_rows() -> None:
    scores, y, _ = _data(1, 203, digits=0)
    shuffled = np.random.default_rng(0).permutation(203)
    first = Ranking.of(scores, y > 0.5).calibration_error()
    assert Ranking.of(scores[shuffled], y[shuffled] > 0.5).calibration_error() == pytest.approx(first)
    # One score for all: the error is the difference of the means.
    flat = Ranking.of(np.zeros(10, np.float32), np.arange(10) < 3)
    assert flat.calibration_error() == pytest.approx(0.2)


def test_randomised_decisions_are_expected_rates() -> None:
    y, group = np.array([1, 1, 0, 0]), np.array([0, 1, 0, 1])
    found = metrics.measure_decisions(np.array([0.75, 0.25, 0.5, 0.0]), y, {"S": group})
    assert found["eod:S"] == pytest.approx(0.5)
    assert found["spd:S"] == pytest.approx(0.5)
    assert found["accuracy"] == pytest.approx((0.75 + 0.25 + 0.5 + 1.0) / 4)
    whole = metrics.measure_decisions(np.array([1, 0, 1, 0]), y, {"S": group})
    assert whole == metrics.measure_decisions(np.array([True, False, True, False]), y, {"S": group})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.measure_decisions(np.array([2.0]), np.array([1]), {}), "between 0 and 1"),
        (lambda: metrics.measure_decisions(np.zeros(3), np.zeros(2), {}), "one value for each label"),
        (lambda: metrics.measure_scores(np.zeros(2), np.zeros(2), {"S": np.zeros(3)}), "^S must"),
        (lambda: metrics.measure_scores(np.zeros(2), np.zeros(2), {}, rate=1.5), "share of rows"),
    ],
)
def test_mistakes(call, message: str) -> None:
    with pytest.raises(FedwiseError, match=message):
        call()


@pytest.mark.parametrize("y", [[], [1, 1], [0, 0]])
def test_nothing_to_match(y: list[int]) -> None:
    found = metrics.measure_scores(np.linspace(-1, 1, len(y)), np.array(y), {"S": np.arange(len(y))})
    assert math.isnan(found["auc"])
    if y:
        assert found["positive_rate@rate"] == y[0]
