"""Differences with intervals, and the federations that comparisons rest on."""

from __future__ import annotations

from pathlib import Path

import federations as feds
import numpy as np
import polars as pl
import pytest
from contrasts import difference, place
from scipy.stats import ttest_ind


def test_interval_is_welchs() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.normal(1, 1, 5), rng.normal(0, 3, 30)
    found = difference(first, second)
    expected = ttest_ind(first, second, equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.value == pytest.approx(first.mean() - second.mean())


def test_words_follow_the_direction_of_the_metric() -> None:
    up = difference(np.array([2.0, 2.1, 1.9]), np.array([1.0, 1.1, 0.9]))
    assert up.verdict("accuracy") == "better"
    assert up.verdict("eod") == "worse"
    unclear = difference(np.array([1.0, 3.0]), np.array([0.0, 3.5]))
    assert unclear.verdict("accuracy") == "no clear difference"
    assert difference(np.array([1.0]), np.array([0.0, 1.0])).verdict("accuracy") == "no clear difference"


def test_place_is_the_rank_of_the_mean_over_seeds() -> None:
    lines = [("chosen", "fedavg", 0.1), ("chosen", "fedavg", 0.3)]
    lines += [("random", "fedavg", v) for v in (0.05, 0.2, 0.4)] + [("random", "fedprox", 0.5)]
    runs = pl.DataFrame(
        [
            {"task": "t", "k": 5, "group": g, "strategy": s, "sampler": "full", "accuracy": v, "eod": v}
            for g, s, v in lines
        ]
    )
    found = place(runs, "accuracy", task="t", k=5, group="chosen")
    assert found is not None
    # 0.2 is tied with one random federation and beaten by another.
    assert (found.as_good, found.as_bad, found.n, found.standing) == (2, 2, 3, 0.5)
    rival = place(runs, "eod", task="t", k=5, group="chosen", strategy="fedprox")
    assert rival is not None
    assert (rival.as_good, rival.n) == (0, 1)
    assert place(runs, "eod", task="none", k=5, group="chosen") is None


def test_random_federations_are_different_and_bounded() -> None:
    drawn = feds.draw_random(["A", "B", "C", "D"], 2, 100)
    assert len({tuple(members) for members in drawn}) == len(drawn) == 6


def test_matched_federations_have_as_many_rows() -> None:
    rng = np.random.default_rng(1)
    rows = {f"C{i:02d}": int(size) for i, size in enumerate(rng.integers(2000, 20000, 50))}
    own = sorted(rows, key=rows.__getitem__)[-8:-3]
    goal = sum(rows[c] for c in own)
    matched = feds.draw_matched(rows, own, 10)
    assert len(matched) == 10
    assert own not in matched
    assert all(abs(sum(rows[c] for c in members) - goal) <= 0.2 * goal for members in matched)


@pytest.mark.acs
def test_printed_federations_are_those_of_the_reference(acs_dir: Path) -> None:
    reference = acs_dir.parent / "reference-results" / "best_federations.csv"
    for k in feds.SIZES:
        assert feds.listed("income2018", k, reference) == feds.listed("income2018", k, None)
