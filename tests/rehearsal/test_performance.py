"""Performances: intervals, comparisons by stage, the verdict sentence, and the file."""

from __future__ import annotations

import numpy as np
import pytest

import fedwise as fw
from fedwise.rehearsal.gap import gap_of
from fedwise.rehearsal.performance import (
    Performance,
    Rehearsed,
    compare,
    paired_spread,
    pooled_spread,
    with_figures,
)  # fmt: skip


def made(role: str, auc: list[float], eod: list[float], *clients: str) -> Performance:
    return Performance(
        role=role, clients=clients or ("a", "b"), stages=tuple(range(len(auc))),
        values={"auc": tuple(auc), "eod:SEX@rate": tuple(eod)},
    )  # fmt: skip


def rehearsed(*performances: Performance) -> Rehearsed:
    return Rehearsed(performances=with_figures(performances), settings={})


def test_spreads_against_their_definitions() -> None:
    table = np.array([[0.80, 0.82, 0.90], [0.70, 0.73, 0.79], [0.60, 0.61, 0.70]])
    ones = [made("random", row.tolist(), row.tolist()) for row in table]
    within = np.sqrt(np.mean(table.var(axis=1, ddof=1)))
    assert pooled_spread(ones, "auc") == pytest.approx(within)
    rest = table - table.mean(axis=1, keepdims=True) - table.mean(axis=0) + table.mean()
    assert paired_spread(ones, "auc") == pytest.approx(np.sqrt((rest**2).sum() / 4))
    # The stages moved all alike, which says nothing about the order.
    assert paired_spread(ones, "auc") < pooled_spread(ones, "auc") / 5
    assert np.isnan(paired_spread(ones[:1], "auc"))


def test_an_interval_holds_error_of_the_mean_one_more_training_and_the_gap() -> None:
    one = with_figures([made("federation", [0.80, 0.82], [0.1, 0.1])])[0]
    figure = one.figure("auc")
    spread = np.std([0.80, 0.82], ddof=1)
    reach = 1.6448536 * np.sqrt(spread**2 * 2.5 + gap_of("auc") ** 2)
    assert (figure.value, figure.low, figure.high) == pytest.approx((0.81, 0.81 - reach, 0.81 + reach))
    assert one.figure("eod@rate").low == pytest.approx(max(0.0, 0.1 - 1.6448536 * gap_of("eod@rate")))


def test_intervals_stay_within_bounds() -> None:
    one = with_figures([made("federation", [0.999, 0.998], [0.001, 0.0])])[0]
    assert one.figure("auc").high == 1.0
    assert one.figure("eod:SEX@rate").low == 0.0


def test_a_clear_difference_has_a_word_and_a_small_one_has_not() -> None:
    rng = np.random.default_rng(0)
    stage = rng.normal(0, 0.05, 4)
    others = [made("random", (0.7 + stage + rng.normal(0, 0.002, 4)).tolist(), [0.2] * 4) for _ in range(6)]
    best = made("federation", (0.72 + stage).tolist(), [0.1] * 4)
    found = compare(best, others, "auc")
    assert found.word == "better"
    assert found.difference == pytest.approx(0.02, abs=0.004)
    assert found.beaten == 1.0
    worse = made("federation", (0.68 + stage).tolist(), [0.3] * 4)
    assert compare(worse, others, "auc").word == "worse"
    assert compare(worse, others, "eod:SEX@rate").word == "worse"
    same = made("federation", (0.7005 + stage + rng.normal(0, 0.002, 4)).tolist(), [0.2] * 4)
    assert compare(same, others, "auc").word == "not distinguishable"


def test_one_stage_decides_nothing() -> None:
    found = compare(made("federation", [0.9], [0.0]), [made("random", [0.6], [0.5])], "auc")
    assert found.word == "not distinguishable"


@pytest.mark.parametrize(("others", "stages"), [(3, 2), (8, 4), (10, 20)])
def test_equal_federations_are_called_different_one_time_in_ten(others: int, stages: int) -> None:
    """Released noise common to all stages and fresh noise of its size in each: 10% by design, 2,000 trials."""
    rng = np.random.default_rng(1)
    called = 0
    for _ in range(2_000):
        released = rng.normal(0, 0.01, (others + 1, 1))
        table = 0.7 + released + rng.normal(0, 0.01, (others + 1, stages)) + rng.normal(0, 0.03, stages)
        ones = [made("random", row.tolist(), row.tolist()) for row in table]
        called += compare(ones[0], ones[1:], "auc").word != "not distinguishable"
    assert 0.06 < called / 2_000 < 0.14


def test_the_verdict_names_every_metric() -> None:
    stage = np.array([0.0, 0.02, -0.01])
    others = [made("random", (0.70 + d + stage).tolist(), [0.20 + d] * 3) for d in (0, 0.001, -0.001)]
    told = rehearsed(made("federation", (0.75 + stage).tolist(), [0.20] * 3), *others)
    assert told.verdict() == (
        "Rehearsed beside 3 random federations of 2: better in AUC; "
        "not distinguishable in EOD of SEX (rate-matched)."
    )
    assert "better" in str(told)
    # The table and the sentence use one level, so that they never contradict each other.
    assert [told.comparison(name).word for name in told.headline()] == ["better", "not distinguishable"]
    assert "nothing can be said" in rehearsed(made("federation", [0.7], [0.2])).verdict()


def test_the_verdict_says_of_which_sizes_random_federations_are() -> None:
    one = made("federation", [0.8, 0.8], [0.1, 0.1], "a", "b")
    two, three = (made("random", [0.7, 0.7], [0.1, 0.1], *names) for names in (("c", "d"), ("c", "d", "e")))
    assert "beside 2 random federations of 2 to 3: " in rehearsed(one, two, three).verdict()
    assert "beside 1 random federation of 3: " in rehearsed(one, three).verdict()


def test_names_of_metrics() -> None:
    one = with_figures([made("federation", [0.7], [0.2])])[0]
    assert one.value("eod@rate") == one.value("eod:SEX@rate") == 0.2
    with pytest.raises(fw.FedwiseError, match="'eod' was not rehearsed"):
        one.value("eod")
    with pytest.raises(fw.FedwiseError, match="metric must be"):
        one.value("aucc")


def test_a_file_reads_back(tmp_path) -> None:
    kept = rehearsed(made("federation", [0.7, 0.8], [0.2, 0.1]), made("random", [0.6, 0.7], [0.1, 0.1]))
    kept.save(tmp_path / "rehearsal.json")
    assert Rehearsed.load(tmp_path / "rehearsal.json") == kept
    with pytest.raises(fw.FedwiseError, match="rehearsal file"):
        Rehearsed.load(tmp_path / "none.json")
    assert kept.to_frame().height == 4


def test_what_noise_drowns_is_said_not_to_be_known() -> None:
    clear = with_figures([made("federation", [0.80, 0.81], [0.10, 0.11])])[0]
    drowned = with_figures([made("federation", [0.60, 0.90], [0.10, 0.11])])[0]
    assert clear.figure("auc").known
    assert not drowned.figure("auc").known
    assert drowned.figure("eod@rate").known
    text = str(Rehearsed(performances=(drowned,), settings={}))
    assert "not known at this epsilon" in text


def test_a_single_stage_has_the_spread_of_those_beside_it() -> None:
    """A candidate that was rehearsed once is held to a margin like any other, a wider one than after three stages."""
    rng = np.random.default_rng(5)
    others = [made("random", (0.7 + rng.normal(0, 0.01, 3)).tolist(), [0.2] * 3) for _ in range(8)]
    once, thrice = (made("federation", [0.75] * n, [0.2] * n) for n in (1, 3))
    spread = compare(thrice, others, "auc").error / np.sqrt((1 + 1 / 8) * (1 + 1 / 3))
    assert 0.005 < spread < 0.02
    assert compare(once, others, "auc").error > compare(thrice, others, "auc").error
