"""Metrics against scikit-learn, fairlearn and a slow bootstrap."""

import math

import fairlearn.metrics as fair
import numpy as np
import pytest
import sklearn.metrics as sk

from fedwise.objective.metric import parse
from fedwise.training import metrics, resampling
from fedwise.training.encoding import Rows


def _rows(y, *groups) -> Rows:
    y = np.asarray(y, dtype=np.float32)
    empty = np.zeros((len(y), 0))
    return Rows(
        1, empty.astype(np.int32), empty.astype(np.float32), np.zeros(0, np.int64), y,
        np.array(groups, dtype=np.int16).reshape(len(groups), len(y)),
    )  # fmt: skip


def _random(seed: int, count: int = 500):
    rng = np.random.default_rng(seed)
    y = rng.random(count) < 0.4
    logits = np.round(rng.normal(size=count) + y - 0.5, 1).astype(np.float32)  # rounded: many ties
    return logits, _rows(y, rng.integers(0, 2, count), rng.integers(0, 4, count))


@pytest.mark.parametrize("seed", range(5))
def test_plain_metrics_are_scikit_learns(seed: int) -> None:
    logits, rows = _random(seed)
    found = {v.metric: v.value for v in metrics.evaluate(logits, rows, ("S", "R")) if not v.attribute}
    y, p = rows.y.astype(int), 1 / (1 + np.exp(-logits.astype(np.float64)))
    guess = logits > 0
    assert found["loss"] == pytest.approx(sk.log_loss(y, p))
    assert found["accuracy"] == pytest.approx(sk.accuracy_score(y, guess))
    assert found["balanced_accuracy"] == pytest.approx(sk.balanced_accuracy_score(y, guess))
    assert found["precision"] == pytest.approx(sk.precision_score(y, guess))
    assert found["recall"] == pytest.approx(sk.recall_score(y, guess))
    assert found["f1"] == pytest.approx(sk.f1_score(y, guess))
    assert found["auc"] == pytest.approx(sk.roc_auc_score(y, logits))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("attribute", [0, 1])
def test_fairness_is_fairlearns(seed: int, attribute: int) -> None:
    logits, rows = _random(seed)
    y, guess, group = rows.y.astype(int), (logits > 0).astype(int), rows.groups[attribute]
    fast = metrics.fairness(metrics.confusion(rows.y, logits > 0, group))
    given = {"sensitive_features": group}
    assert fast["spd"] == pytest.approx(fair.demographic_parity_difference(y, guess, **given))
    assert fast["eod"] == pytest.approx(fair.equal_opportunity_difference(y, guess, **given))
    assert fast["equalised_odds"] == pytest.approx(fair.equalized_odds_difference(y, guess, **given))
    by_group = fair.MetricFrame(metrics=sk.accuracy_score, y_true=y, y_pred=guess, **given)
    assert fast["mad"] == pytest.approx(by_group.difference())
    through = metrics.by_fairlearn(rows.y, logits > 0, group)
    for name, value in fast.items():
        assert through[name] == pytest.approx(value, nan_ok=True), name


def test_signs_and_levels() -> None:
    # Group 0: predictions 1 1 0 0; group 1: 1 0 0 0. Targets 1 0 1 0 in both.
    rows = _rows([1, 0, 1, 0, 1, 0, 1, 0], [0] * 4 + [1] * 4, [0, 0, 1, 1, 2, 2, 2, 2])
    logits = np.array([1, 1, -1, -1, 1, -1, -1, -1], dtype=np.float32)
    found = {(v.metric, v.attribute): v.value for v in metrics.evaluate(logits, rows, ("S", "R"))}
    assert found["spd_signed", "S"] == pytest.approx(0.25 - 0.5)
    assert found["spd", "S"] == pytest.approx(0.25)
    assert found["eod_signed", "S"] == pytest.approx(0.0)
    assert found["mad_signed", "S"] == pytest.approx(0.75 - 0.5)
    assert found["equalised_odds", "S"] == pytest.approx(0.5)
    assert found["spd", "R"] == pytest.approx(1.0)
    assert math.isnan(found["spd_signed", "R"])


@pytest.mark.parametrize(
    ("y", "group", "undefined"),
    [
        ([1, 1, 1], [0, 0, 1], {"auc", "balanced_accuracy"}),  # one class only
        ([0, 0, 0], [0, 1, 1], {"auc", "balanced_accuracy", "recall", "eod"}),  # no positive at all
        ([1, 0, 0], [0, 1, 1], {"eod"}),  # a group without positives
        ([1, 0, 1], [1, 1, 1], {"spd", "eod", "mad", "equalised_odds"}),  # one group only
        ([], [], {"accuracy", "auc", "spd", "loss"}),  # no rows
    ],
)
@pytest.mark.parametrize("last", [False, True])
def test_what_no_row_defines_is_nan(y: list[int], group: list[int], undefined: set[str], last: bool) -> None:
    logits = np.linspace(-1, 1, len(y)).astype(np.float32)
    run = metrics.final if last else metrics.evaluate
    found = {v.metric: v.value for v in run(logits, _rows(y, group), ("S",))}
    assert undefined <= {name for name, value in found.items() if math.isnan(value)}
    if len(y):
        assert not math.isnan(found["loss"])


@pytest.mark.parametrize(("limit", "bins"), [(0, 64), (20_000, 2_048)], ids=["limit forms", "as they are"])
def test_intervals_are_those_of_resampled_rows(
    monkeypatch: pytest.MonkeyPatch, limit: int, bins: int
) -> None:
    """Against a slow bootstrap of 600 resamples of the rows.

    The spread of a 95% interval end from 600 draws is about 5% of its width; both sides vary, so 0.25 of the
    width is about 3.5 sigma for each of 120 numbers: a false alarm in about 6% of seeds, and the seed is fixed.
    """
    monkeypatch.setattr(resampling, "EXACT_ROWS", limit)
    monkeypatch.setattr(resampling, "MATCHED_BINS", bins)
    logits, rows = _random(9, 400)
    logits = logits + np.random.default_rng(0).normal(scale=0.01, size=400).astype(np.float32)
    found = metrics.final(logits, rows, ("S", "R"), replicates=600, best=-0.3)
    rng = np.random.default_rng(1)
    drawn: dict[tuple[str, str], list[float]] = {(v.metric, v.attribute): [] for v in found}
    for _ in range(600):
        pick = rng.integers(400, size=400)
        again = metrics.evaluate(logits[pick], rows.take(pick), ("S", "R"), extended=True, best=-0.3)
        for v in again:
            drawn[v.metric, v.attribute].append(v.value)
    checked = 0
    for v in found:
        if math.isnan(v.value) or v.metric == "calibration_error":
            continue
        low, high = np.quantile(drawn[v.metric, v.attribute], [0.025, 0.975])
        assert v.low < v.high
        assert v.low == pytest.approx(low, abs=0.25 * (high - low)), v
        assert v.high == pytest.approx(high, abs=0.25 * (high - low)), v
        checked += 1
    assert checked == 7 + 7 + 4 + 2 + 2 * (6 + 7 + 4)  # as ever, Brier and positive rate, two more thresholds


def test_evaluate_and_the_pure_function_agree() -> None:
    logits, rows = _random(2)
    pure = metrics.measure_scores(logits, rows.y, dict(zip(("S", "R"), rows.groups, strict=True)), best=0.4)
    values = metrics.evaluate(logits, rows, ("S", "R"), extended=True, best=0.4)
    assert len(values) == len(pure)
    for v in values:
        metric = parse(v.metric)._replace(attribute=v.attribute)
        assert pure[str(metric)] == pytest.approx(v.value, nan_ok=True), metric
    short = metrics.evaluate(logits, rows, ("S", "R"))
    assert [str(v) for v in values[: len(short)]] == [
        str(v) for v in short
    ]  # text, as NaN is not equal to itself
