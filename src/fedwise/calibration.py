"""Calibration of the weights: make the loss rank federations as trained models do.

Federations of varying size are trained; differential evolution (Storn & Price 1997) looks for weights
(alpha, beta, gamma, lam) that maximise

    mean over fairness gaps of Spearman(PFL, gap) − mean over utilities of Spearman(PFL, utility).

Rank correlation ignores scale, so only the direction of the weights matters; they are reported with the
largest equal to 2, as the paper's are. What fits one sample of federations need not fit the next, so
weights are fitted on one half and judged on the other. Different weights often fit equally well: several restarts
show how far they spread, and `identification` which balance of the terms the data determines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt
from scipy.optimize import differential_evolution
from scipy.stats import rankdata

from .errors import FedwiseError
from .files import format_toml
from .identification import Identification, identify
from .objective.pfl import Weights

Floats = npt.NDArray[np.float64]
Goal = Literal["utility", "fairness"]

WEIGHT_NAMES = ("alpha", "beta", "gamma", "lam")
#: Fits from different starts; each is a quarter of the work of one long fit.
RESTARTS = 5

#: Weights to compare with: the paper's, and what one would try without any calibration.
BASELINES: Mapping[str, Weights] = {
    "paper": Weights(),
    "only signal": Weights(alpha=0, beta=0, gamma=0, lam=1),
    "only direct bias": Weights(alpha=1, beta=0, gamma=0, lam=0),
}


class Correlation(msgspec.Struct, frozen=True):
    """Spearman correlation of the loss with one trained metric, with a 95% bootstrap interval."""

    metric: str
    goal: Goal
    value: float
    low: float
    high: float


class Judgement(msgspec.Struct, frozen=True):
    """How one set of weights ranks federations it was not fitted on."""

    name: str
    weights: Weights
    score: float
    correlations: list[Correlation]


class Restart(msgspec.Struct, frozen=True):
    """One fit from a start of its own, and its score on the federations it was fitted on."""

    weights: Weights
    score: float


class Spread(msgspec.Struct, frozen=True):
    """Quantiles of one weight over the restarts, each scaled so that its largest weight is 2."""

    weight: str
    low: float
    median: float
    high: float


class Calibration(msgspec.Struct, frozen=True):
    """Fitted weights, and how they and the baselines do on the held-out half."""

    weights: Weights
    fitted_on: int
    judged_on: int
    judgements: list[Judgement]
    restarts: list[Restart] = []
    spread: list[Spread] = []
    identified: Identification | None = None
    notes: list[str] = []

    def to_toml(self) -> str:
        """A ``weights.toml`` that `plan` and `select` take."""
        lines = [
            "# made by fedwise calibrate; see the comments for how the weights did on held-out federations"
        ]
        for judgement in self.judgements:
            shown = ", ".join(
                f"{c.metric} {c.value:+.2f} [{c.low:+.2f}, {c.high:+.2f}]" for c in judgement.correlations
            )
            lines.append(f"# {judgement.name}: score {judgement.score:.3f}; {shown}")
        lines += [f"# {note}" for note in self.notes]
        weights = {name: float(f"{getattr(self.weights, name):.6g}") for name in WEIGHT_NAMES}
        return "\n".join(lines) + "\n" + format_toml({"weights": weights})


def fit_and_judge(
    terms: Floats,
    metrics: Mapping[str, Floats],
    goals: Mapping[str, Goal],
    *,
    seed: int = 0,
    resamples: int = 1000,
) -> Calibration:
    """Fit on a random half of the federations, judge on the other half, next to the baselines.

    Parameters
    ----------
    terms
        Shape (federations, 4): direct bias, proxy bias, redundancy, signal of each federation.
    metrics
        Trained metric of each federation, shape (federations,) each.
    goals
        Whether a metric is a ``utility`` (larger is better) or a ``fairness`` gap (smaller is better).

    Raises
    ------
    FedwiseError
        Fewer than 8 federations, or a metric without a goal, or one that never varies.
    """
    count = len(terms)
    if count < 8:
        raise FedwiseError(f"calibration must have at least 8 federations, got {count}; train more")
    for name, values in metrics.items():
        if name not in goals:
            raise FedwiseError(f"metric '{name}' must be declared utility or fairness")
        if len(values) != count or not np.isfinite(values).all():
            raise FedwiseError(f"metric '{name}' must have one finite value for each federation")
    order = np.random.default_rng(seed).permutation(count)
    first, second = order[: count // 2], order[count // 2 :]
    given = {n: v[first] for n, v in metrics.items()}
    restarts = fit_restarts(terms[first], given, goals, seed=seed)
    fitted = restarts[0].weights
    held_out = {n: v[second] for n, v in metrics.items()}
    judged = [
        judge(name, weights, terms[second], held_out, goals, seed=seed, resamples=resamples)
        for name, weights in {"calibrated": fitted, **BASELINES}.items()
    ]
    ranks = {n: _ranks(v) for n, v in given.items()}

    def score(weights: Floats) -> Floats:
        return _scores(_losses(terms[first], weights.T).T, ranks, goals)

    identified = identify(terms[first], score, restarts[0].score, seed=seed)
    return Calibration(
        weights=fitted,
        fitted_on=len(first),
        judged_on=len(second),
        judgements=judged,
        restarts=restarts,
        spread=_spread(restarts),
        identified=identified,
        notes=[identified.says, *_compare(judged)],
    )


def _spread(restarts: list[Restart]) -> list[Spread]:
    found = []
    for name in WEIGHT_NAMES:
        low, median, high = np.quantile([getattr(r.weights, name) for r in restarts], [0.05, 0.5, 0.95])
        found.append(Spread(name, float(low), float(median), float(high)))
    return found


def _compare(judged: list[Judgement]) -> list[str]:
    """A warning where the calibration gained nothing on federations held back."""
    calibrated, paper = judged[0], next(j for j in judged if j.name == "paper")
    if calibrated.score > paper.score:
        return []
    return [
        f"the calibrated weights are no better than the paper's on federations held back: score "
        f"{calibrated.score:.2f} against {paper.score:.2f}; keep the paper's"
    ]


def fit(terms: Floats, metrics: Mapping[str, Floats], goals: Mapping[str, Goal], *, seed: int = 0) -> Weights:
    """Weights with the best score on the given federations."""
    return fit_restarts(terms, metrics, goals, seed=seed)[0].weights


def fit_restarts(
    terms: Floats,
    metrics: Mapping[str, Floats],
    goals: Mapping[str, Goal],
    *,
    seed: int = 0,
    restarts: int = RESTARTS,
) -> list[Restart]:
    """Fits from `restarts` different starts, the best first."""
    ranks = {name: _ranks(values) for name, values in metrics.items()}

    def badness(directions: Floats) -> Floats:
        return -_scores(_losses(terms, directions).T, ranks, goals)

    found = []
    for number in range(restarts):
        ended = differential_evolution(
            badness, [(0.0, 1.0)] * 4, seed=seed + 1000 * number, tol=1e-8, popsize=8, maxiter=100, polish=False,
            vectorized=True, updating="deferred",
        )  # fmt: skip
        scaled = 2.0 * ended.x / max(float(np.max(ended.x)), 1e-12)
        found.append(Restart(Weights(*(round(float(w), 4) for w in scaled)), -float(ended.fun)))
    return sorted(found, key=lambda each: -each.score)


def judge(
    name: str,
    weights: Weights,
    terms: Floats,
    metrics: Mapping[str, Floats],
    goals: Mapping[str, Goal],
    *,
    seed: int = 0,
    resamples: int = 1000,
) -> Judgement:
    """Correlations of the loss under `weights` with every metric, with bootstrap intervals over federations."""
    losses = _losses(terms, np.array([weights.alpha, weights.beta, weights.gamma, weights.lam]))
    rng = np.random.default_rng(seed)
    draws = rng.integers(0, len(losses), (resamples, len(losses)))
    correlations = []
    for metric, values in metrics.items():
        redrawn = np.sum(_ranks(losses[draws]) * _ranks(values[draws]), axis=1)
        low, high = np.quantile(redrawn, [0.025, 0.975])
        correlations.append(
            Correlation(metric, goals[metric], spearman(losses, values), float(low), float(high))
        )
    ranks = {metric: _ranks(values) for metric, values in metrics.items()}
    return Judgement(name, weights, _score(losses, ranks, goals), correlations)


def spearman(x: Floats, y: Floats) -> float:
    """Spearman rank correlation; 0 where one side never varies."""
    return float(np.dot(_ranks(x), _ranks(y)))


def _losses(terms: Floats, directions: Floats) -> Floats:
    """Loss of each federation under weights of shape (4,), or (4, sets)."""
    return np.asarray((terms * np.array([1.0, 1.0, 1.0, -1.0])) @ directions)


def _ranks(values: Floats) -> Floats:
    """Centred ranks of unit length along the last axis, so that their dot product is the correlation."""
    ranks = rankdata(values, axis=-1)
    ranks -= ranks.mean(axis=-1, keepdims=True)
    length = np.linalg.norm(ranks, axis=-1, keepdims=True)
    return np.asarray(np.divide(ranks, length, out=np.zeros_like(ranks), where=length > 0))


def _score(losses: Floats, ranks: Mapping[str, Floats], goals: Mapping[str, Goal]) -> float:
    return float(_scores(losses[None], ranks, goals)[0])


def _scores(losses: Floats, ranks: Mapping[str, Floats], goals: Mapping[str, Goal]) -> Floats:
    """Scores of many sets of weights at once, from losses of shape (sets, federations)."""
    own = _ranks(losses)
    total = np.zeros(len(losses))
    for goal, sign in (("fairness", 1.0), ("utility", -1.0)):
        found = [own @ values for name, values in ranks.items() if goals[name] == goal]
        if found:
            total += sign * np.mean(found, axis=0)
    return total
