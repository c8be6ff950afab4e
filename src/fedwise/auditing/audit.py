"""Audit: the strongest membership attack on a release, run against the code that really draws the noise.

The attacker knows every record but one, the target, and wants to know whether it is in the data. The
target touches one cell of each table; the noise of all other cells is independent of it and tells
nothing. By Neyman and Pearson the best score is the log likelihood ratio of those cells,

    Λ = Σ_j (noisy_j − count_without_target_j − ½) / σ_j²,

and theory gives its power exactly: with μ² = Σ_j 1/σ_j² over the m tables observed,

    AUC = Φ(μ/√2),    TPR at FPR f = Φ(Φ⁻¹(f) + μ).

An attacker who sees one table drawn at random faces a mixture over tables, for which the same follows
from Λ ~ N(±μ_j²/2, μ_j²) with μ_j = 1/σ_j.

A trial draws fresh noise for the target's cells through `add_noise`, the function every release uses.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.stats import beta, norm

from ..errors import FedwiseError
from ..owner.noise import NoisyCounts, add_noise
from ..owner.tables import Tables, count
from ..planning import Plan
from ..privacy.accounting import discrete_gaussian
from ..schema.frame import FrameLike
from ..schema.layout import Layout

Floats = npt.NDArray[np.float64]
Mechanism = Callable[[Tables, Floats], NoisyCounts]
Attack = Literal["joint", "single"]


#: Standard errors by which the attack may beat its theory before the audit fails: one false alarm in 30,000.
TOLERANCE = 4.0


class Roc(msgspec.Struct, frozen=True):
    """True positive rates at chosen false positive rates, measured and in theory."""

    fpr: list[float]
    tpr: list[float]
    theory: list[float]


class Audit(msgspec.Struct, frozen=True):
    """Outcome of an audit.

    `least_noise` is the smallest variance of the noise seen on any table, relative to the plan's. `ok` means
    that neither it, nor the bound on ε, nor the attack's AUC contradicts the promise.
    """

    attack: str
    epsilon: float | Literal["inf"]
    delta: float
    trials: int
    auc: float
    auc_std_error: float
    auc_theory: float
    tpr_at_1_percent: float
    tpr_theory: float
    epsilon_lower_bound: float
    confidence: float
    least_noise: float
    ok: bool
    roc: Roc


def audit(
    plan: Plan,
    frame: FrameLike,
    *,
    attack: Attack = "joint",
    trials: int = 1000,
    seed: int = 0,
    confidence: float = 0.999,
    mechanism: Mechanism = add_noise,
) -> Audit:
    """Attack `trials` targets inside and as many outside the data.

    Parameters
    ----------
    plan, frame
        The request and the rows it would be answered from; targets are drawn from the rows.
    attack
        ``joint`` uses all tables, ``single`` one table drawn for each target.
    seed
        Choice of targets (and of the table for ``single``). The noise itself has no seed.
    confidence
        Of the lower bound on ε: with an honest mechanism it exceeds the promise with probability at
        most 1 − confidence.
    mechanism
        What adds the noise; a test puts a broken one here and must see it caught.
    """
    if trials < 100:
        raise FedwiseError(f"trials must be at least 100, got {trials}; fewer say nothing")
    if not plan.private:
        raise FedwiseError("audit needs a plan with a finite epsilon; an exact release needs no attack")
    codes = plan.schema.encode(frame)
    if codes.shape[1] == 0:
        raise FedwiseError("audit needs at least one row to draw targets from")
    rng = np.random.default_rng(seed)
    inside, noise_in = _scores(plan, codes, attack, trials, rng, mechanism, member=True)
    outside, noise_out = _scores(plan, codes, attack, trials, rng, mechanism, member=False)
    least, enough = _noise_check(np.hstack([noise_in, noise_out]), plan.sigmas)
    mu = _mu(plan, attack)
    theory = auc_theory(mu)
    area, error = auc(inside, outside)
    lower = epsilon_lower_bound(inside, outside, delta=plan.delta, confidence=confidence)
    rates = np.logspace(-3, 0, 31)
    return Audit(
        attack=attack,
        epsilon=plan.promise_epsilon,
        delta=plan.delta,
        trials=trials,
        auc=area,
        auc_std_error=error,
        auc_theory=theory,
        tpr_at_1_percent=float(tpr_at(inside, outside, np.array([0.01]))[0]),
        tpr_theory=tpr_theory(mu, 0.01),
        epsilon_lower_bound=lower,
        confidence=confidence,
        least_noise=least,
        ok=lower <= plan.epsilon and area - theory <= TOLERANCE * error and enough,
        roc=Roc(
            fpr=rates.tolist(),
            tpr=tpr_at(inside, outside, rates).tolist(),
            theory=[tpr_theory(mu, float(rate)) for rate in rates],
        ),
    )


def _mu(plan: Plan, attack: Attack) -> Floats:
    """μ of the attack: one number for joint, one a table (equally likely) for single."""
    if attack == "joint":
        return np.array([math.sqrt(float(np.sum(plan.sigmas**-2.0)))])
    return np.asarray(1.0 / plan.sigmas)


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


def _scores(
    plan: Plan,
    codes: npt.NDArray[np.int16],
    attack: Attack,
    trials: int,
    rng: np.random.Generator,
    mechanism: Mechanism,
    *,
    member: bool,
) -> tuple[Floats, Floats]:
    """Likelihood ratios of `trials` targets, each with noise of its own; and that noise, (tables, trials)."""
    layout = plan.layout
    exact = count(codes, layout).exact
    targets = rng.integers(0, codes.shape[1], trials)
    cells = np.stack(
        [
            layout.offsets[j] + codes[x, targets].astype(np.int64) * layout.sizes[y] + codes[y, targets]
            for j, (x, y) in enumerate(layout.pairs)
        ]
    )
    without = exact[cells] - 1  # every target comes from the data, so its cells hold at least itself
    # A table for each pair, whose cells are the trials: the real mechanism sees ordinary exact tables.
    columns = Layout(
        tuple(str(i) for i in range(layout.tables + 1)),
        (1,) + (trials,) * layout.tables,
        tuple((0, j + 1) for j in range(layout.tables)),
    )
    truth = Tables(columns, (without + (1 if member else 0)).ravel())
    noisy = np.asarray(mechanism(truth, plan.sigmas)).reshape(layout.tables, trials)
    ratios = (noisy - without - 0.5) / plan.sigmas[:, None] ** 2
    noise = (noisy - truth.exact.reshape(layout.tables, trials)).astype(np.float64)
    if attack == "joint":
        return ratios.sum(axis=0), noise
    return ratios[rng.integers(0, layout.tables, trials), np.arange(trials)], noise


def _noise_check(noise: Floats, sigmas: Floats) -> tuple[float, bool]:
    """Least observed variance over tables relative to the discrete Gaussian's, and whether it may be chance.

    A table that leaves with too little noise is caught even where the attack cannot profit from it. The
    variance of n draws has a relative standard error of √(2/n); 6 of them, over at most 10⁴ tables, are a
    false alarm in 10⁵ audits.
    """
    expected = []
    for sigma in sigmas:
        support, p = discrete_gaussian(float(sigma))
        expected.append(float(np.sum(p * support**2)))
    least = float(np.min((noise**2).mean(axis=1) / np.array(expected)))
    return least, least >= 1 - 6 * math.sqrt(2 / noise.shape[1])


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
    bounds = [_log_ratio(tpr_low - delta, fpr_high), _log_ratio(1 - fpr_high - delta, 1 - tpr_low)]
    return max(0.0, *bounds)


def _best_threshold(inside: Floats, outside: Floats, delta: float) -> float:
    candidates = np.quantile(np.concatenate([inside, outside]), np.linspace(0.02, 0.98, 49))
    best, value = float(candidates[0]), -math.inf
    for threshold in candidates:
        tpr, fpr = float(np.mean(inside > threshold)), float(np.mean(outside > threshold))
        # Rates shrunk toward the middle by one case: a ratio of tiny counts is luck, not evidence.
        tpr, fpr = tpr - 1 / len(inside), fpr + 1 / len(outside)
        found = max(_log_ratio(tpr - delta, fpr), _log_ratio(1 - fpr - delta, 1 - tpr))
        if found > value:
            best, value = float(threshold), found
    return best


def _log_ratio(numerator: float, denominator: float) -> float:
    if numerator <= 0:
        return -math.inf
    return math.log(numerator / denominator) if denominator > 0 else math.inf


def clopper_pearson(hits: int, n: int, risk: float) -> tuple[float, float]:
    """Exact binomial interval; each side is missed with probability at most `risk`."""
    low = 0.0 if hits == 0 else float(beta.ppf(risk, hits, n - hits + 1))
    high = 1.0 if hits == n else float(beta.ppf(1 - risk, hits + 1, n - hits))
    return low, high
