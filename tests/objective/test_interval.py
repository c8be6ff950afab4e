"""The interval of a predicted metric: closed forms, bounds of the metric, and noise that drowns the answer."""

from __future__ import annotations

import math

import pytest

from fedwise.objective.interval import OTHER_GAP, Z, gap_of, interval


def test_noise_and_gap_add_as_variances() -> None:
    found = interval("auc", 0.7, noise=0.03**2, gap=0.04)
    assert found.low == pytest.approx(0.7 - Z * 0.05)
    assert found.high == pytest.approx(0.7 + Z * 0.05)
    assert found.known


def test_bounds_stay_within_what_the_metric_can_be() -> None:
    assert interval("eod:SEX@rate", 0.01, noise=0.0, gap=0.1).low == 0.0
    assert interval("auc", 0.99, noise=0.0, gap=0.1).high == 1.0
    assert interval("loss", 0.5, noise=0.0, gap=1.0).high > 1.0


@pytest.mark.parametrize(
    ("metric", "value", "error", "known"),
    [
        ("auc", 0.7, 0.06, True),
        ("auc", 0.7, 0.062, False),  # 1.645 × .062 is above .1
        ("loss", 0.6, 0.18, True),  # a loss has no upper bound: half of its value counts
        ("loss", 0.6, 0.19, False),
    ],
)
def test_noise_that_drowns_the_answer_is_said(metric: str, value: float, error: float, known: bool) -> None:
    assert interval(metric, value, noise=error**2, gap=0.0).known is known
    assert interval(metric, value, noise=0.0, gap=1.0).known


def test_unknown_noise_leaves_the_bounds_of_the_metric() -> None:
    assert interval("auc", 0.7, noise=math.nan, gap=0.1)[:2] == (0.0, 1.0)


def test_gaps_are_found_by_metric_then_by_its_base() -> None:
    known = {"eod": 0.02, "eod@rate": 0.01}
    assert gap_of("eod:SEX@rate", known, Z) == pytest.approx(0.01)
    assert gap_of("eod:RAC1P@best", known, Z) == pytest.approx(0.02)
    assert gap_of("f1", known, 2 * Z) == pytest.approx(2 * OTHER_GAP)
