"""Calibration finds planted weights and does not flatter itself."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

import fedwise as fw
from fedwise.calibration import BASELINES, fit, fit_and_judge, judge, spearman

GOALS = {"accuracy": "utility", "eod": "fairness"}


def planted(seed: int, noise: float, count: int = 80) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Federations whose metrics follow the weights (2, 0.5, 0.1, 1) up to noise."""
    rng = np.random.default_rng(seed)
    terms = rng.gamma(2.0, 0.1, (count, 4))
    losses = terms @ np.array([2, 0.5, 0.1, -1])
    return terms, {
        "accuracy": -losses + noise * rng.normal(size=count),
        "eod": losses + noise * rng.normal(size=count),
    }


def test_spearman_equals_scipy_with_ties() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 5, 40).astype(float), rng.normal(size=40)
    assert spearman(x, y) == pytest.approx(spearmanr(x, y).statistic)
    assert spearman(np.ones(5), y[:5]) == 0.0


def test_planted_weights_are_found() -> None:
    terms, metrics = planted(1, noise=0.0)
    weights = fit(terms, metrics, GOALS, seed=0)
    losses = terms @ np.array([weights.alpha, weights.beta, weights.gamma, -weights.lam])
    assert spearman(losses, metrics["eod"]) > 0.99
    assert max(weights.alpha, weights.beta, weights.gamma, weights.lam) == pytest.approx(2.0)


def test_held_out_half_judges_and_beats_trivial_weights() -> None:
    terms, metrics = planted(2, noise=0.05)
    found = fit_and_judge(terms, metrics, GOALS, seed=0, resamples=200)
    scores = {j.name: j.score for j in found.judgements}
    assert set(scores) == {"calibrated", *BASELINES}
    assert scores["calibrated"] > max(scores["only signal"], scores["only direct bias"])
    assert found.fitted_on == found.judged_on == 40
    for judgement in found.judgements:
        for c in judgement.correlations:
            assert c.low <= c.value <= c.high


def test_pure_noise_gets_no_held_out_credit() -> None:
    """Fitted on noise the training score is high; on the held-out half it must not be (5 sd of a null score)."""
    rng = np.random.default_rng(5)
    terms = rng.gamma(2.0, 0.1, (60, 4))
    metrics = {"accuracy": rng.normal(size=60), "eod": rng.normal(size=60)}
    found = fit_and_judge(terms, metrics, GOALS, seed=0, resamples=50)
    assert abs(found.judgements[0].score) < 5 * np.sqrt(2 / 29)
    on_training = judge("same", fit(terms, metrics, GOALS), terms, metrics, GOALS, resamples=10)
    assert on_training.score > found.judgements[0].score


def test_weights_file_is_read_back(tmp_path: object) -> None:
    from pathlib import Path

    terms, metrics = planted(3, noise=0.05)
    found = fit_and_judge(terms, metrics, GOALS, seed=1, resamples=20)
    path = Path(str(tmp_path)) / "weights.toml"
    path.write_text(found.to_toml())
    assert fw.Weights.load(path) == found.weights


def test_too_little_to_fit() -> None:
    terms, metrics = planted(4, noise=0.1, count=6)
    with pytest.raises(fw.FedwiseError, match="at least 8"):
        fit_and_judge(terms, metrics, GOALS)
    terms, metrics = planted(4, noise=0.1)
    with pytest.raises(fw.FedwiseError, match="utility or fairness"):
        fit_and_judge(terms, metrics, {"accuracy": "utility"})


def test_restarts_are_sorted_and_their_spread_is_shown() -> None:
    terms, metrics = planted(3, noise=0.3)
    found = fit_and_judge(terms, metrics, GOALS, seed=0, resamples=20)
    scores = [each.score for each in found.restarts]
    assert len(scores) == 5
    assert scores == sorted(scores, reverse=True)
    assert found.weights == found.restarts[0].weights
    assert [each.weight for each in found.spread] == ["alpha", "beta", "gamma", "lam"]
    assert all(0 <= each.low <= each.median <= each.high <= 2 for each in found.spread)
    assert found.identified is not None
    assert found.notes[0] == found.identified.says
    assert f"# {found.notes[0]}" in found.to_toml()


def test_two_terms_that_move_together_cannot_be_told_apart() -> None:
    """Direct and proxy bias are one column: only their sum against the signal is determined."""
    rng = np.random.default_rng(4)
    terms = rng.gamma(2.0, 0.1, (400, 4))
    terms[:, 1] = terms[:, 0]
    terms[:, 2] = 0.1
    losses = terms @ np.array([1, 1, 0, -2.0])
    found = fit_and_judge(terms, {"accuracy": -losses, "eod": losses}, GOALS, seed=0, resamples=20)
    assert found.identified is not None
    first, second = found.identified.directions
    assert first.determined
    assert {frozenset(first.of), frozenset(first.against)} == {
        frozenset({"direct_bias", "proxy_bias"}), frozenset({"signal"}),
    }  # fmt: skip
    assert first.low <= 1 <= first.high  # both sides weigh the same in the plant
    assert not second.determined
    assert {*second.of, *second.against} == {"direct_bias", "proxy_bias"}
    assert "the weights alone are not determined" in found.notes[0]


def test_independent_terms_without_noise_are_all_determined_and_noise_determines_nothing() -> None:
    rng = np.random.default_rng(6)
    terms = rng.gamma(2.0, 0.1, (400, 4))
    terms[:, 2] = 0.1
    losses = terms @ np.array([1, 1, 0, -1.0])
    clear = fit_and_judge(terms, {"accuracy": -losses, "eod": losses}, GOALS, seed=0, resamples=20)
    assert "determines every balance" in clear.notes[0]
    metrics = {"accuracy": rng.normal(size=400), "eod": rng.normal(size=400)}
    assert "determines no balance" in fit_and_judge(terms, metrics, GOALS, resamples=20).notes[0]


def test_a_calibration_that_gains_nothing_says_so() -> None:
    terms, _ = planted(7, noise=0.0)
    losses = terms @ np.array([2.0, 1.4, 0.06, -1.8])
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(2, 80))
    metrics = {"accuracy": -losses + noise[0], "eod": losses + noise[1]}
    found = fit_and_judge(terms, metrics, GOALS, seed=0, resamples=20)
    scores = {j.name: j.score for j in found.judgements}
    warned = any("no better than the paper's" in note for note in found.notes)
    assert warned == (scores["calibrated"] <= scores["paper"])
    assert warned
