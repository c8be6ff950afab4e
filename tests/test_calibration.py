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
