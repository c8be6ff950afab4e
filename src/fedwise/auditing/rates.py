"""Rates of a membership attack: its ROC, in theory and as measured, and the ε it refutes without any assumption."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.stats import beta, norm

Floats = npt.NDArray[np.float64]


def auc_theory(mu: Floats) -> float:
    """AUC against a target seen through one of the given μ, equally likely: mean of Φ(√(μ_i² + μ_j²)/2)."""
    squares = mu**2
    return float(np.mean(norm.cdf(np.sqrt(squares[:, None] + squares[None, :]) / 2)))


def tpr_theory(mu: Floats, fpr: float) -> float:
    """TPR at a false positive rate; Φ(Φ⁻¹(f) + μ) for a single μ."""
    if fpr >= 1:
        return 1.0

    def excess(threshold: float) -> float:
        return float(np.mean(norm.sf((threshold + mu**2 / 2) / mu))) - fpr

    reach = 10 * float(mu.max()) + float(mu.max()) ** 2
    threshold = float(brentq(excess, -reach, reach, xtol=1e-14))
    return float(np.mean(norm.sf((threshold - mu**2 / 2) / mu)))


def auc(inside: Floats, outside: Floats) -> tuple[float, float]:
    """Area under the ROC curve with its standard error (DeLong, DeLong & Clarke-Pearson 1988)."""
    merged = np.sort(outside)
    below = (np.searchsorted(merged, inside, "left") + np.searchsorted(merged, inside, "right")) / 2
    merged = np.sort(inside)
    above = (
        len(inside)
        - (np.searchsorted(merged, outside, "left") + np.searchsorted(merged, outside, "right")) / 2
    )
    first, second = below / len(outside), above / len(inside)
    variance = first.var(ddof=1) / len(inside) + second.var(ddof=1) / len(outside)
    return float(first.mean()), float(math.sqrt(variance))


def tpr_at(inside: Floats, outside: Floats, fpr: Floats) -> Floats:
    """True positive rate of the threshold test at each false positive rate."""
    thresholds = np.quantile(outside, 1 - fpr)
    return np.array([float(np.mean(inside > threshold)) for threshold in thresholds])


def epsilon_lower_bound(inside: Floats, outside: Floats, *, delta: float, confidence: float = 0.999) -> float:
    """A value that ε exceeds with the given confidence, from the attack's error rates.

    (ε, δ)-privacy forces TPR ≤ e^ε·FPR + δ and 1 − FPR ≤ e^ε·(1 − TPR) + δ for every test. The threshold
    is chosen on the first half of the trials; on the second half Clopper–Pearson bounds both rates, each at
    a quarter of the allowed error, to be on the safe side.
    """
    half_in, half_out = len(inside) // 2, len(outside) // 2
    chosen = _best_threshold(inside[:half_in], outside[:half_out], delta)
    true, false = inside[half_in:] > chosen, outside[half_out:] > chosen
    risk = (1 - confidence) / 4
    tpr_low, _ = clopper_pearson(int(true.sum()), len(true), risk)
    _, fpr_high = clopper_pearson(int(false.sum()), len(false), risk)
    bounds = [log_ratio(tpr_low - delta, fpr_high), log_ratio(1 - fpr_high - delta, 1 - tpr_low)]
    return max(0.0, *bounds)


def _best_threshold(inside: Floats, outside: Floats, delta: float) -> float:
    candidates = np.quantile(np.concatenate([inside, outside]), np.linspace(0.02, 0.98, 49))
    best, value = float(candidates[0]), -math.inf
    for threshold in candidates:
        tpr, fpr = float(np.mean(inside > threshold)), float(np.mean(outside > threshold))
        # Rates shrunk toward the middle by one case: a ratio of tiny counts is luck, not evidence.
        tpr, fpr = tpr - 1 / len(inside), fpr + 1 / len(outside)
        found = max(log_ratio(tpr - delta, fpr), log_ratio(1 - fpr - delta, 1 - tpr))
        if found > value:
            best, value = float(threshold), found
    return best


def log_ratio(numerator: float, denominator: float) -> float:
    """ln(numerator / denominator), infinite at the ends."""
    if numerator <= 0:
        return -math.inf
    return math.log(numerator / denominator) if denominator > 0 else math.inf


def clopper_pearson(hits: int, n: int, risk: float) -> tuple[float, float]:
    """Exact binomial interval; each side is missed with probability at most `risk`."""
    low = 0.0 if hits == 0 else float(beta.ppf(risk, hits, n - hits + 1))
    high = 1.0 if hits == n else float(beta.ppf(1 - risk, hits + 1, n - hits))
    return low, high
