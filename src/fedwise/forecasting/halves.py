"""Halves: forecasts that noise does not flatter.

A federation's model is made from one half of the noise (`fedwise.estimation.fission`) and judged on people drawn from
the other, both ways round, and the metrics are averaged. A model made from noisy tables has learnt some of their noise:
its scores spread too widely, more of them pass ½, and balanced accuracy rises. The two halves' models tell how much:
over people, the correlation of their scores

    λ = cov(s_A, s_B) / √(var s_A · var s_B)

is the share of the spread that is signal, and scores are drawn together towards their mean by λ (errors in variables).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ..estimation.estimates import Estimates
from ..estimation.fission import split_noise
from .class_metrics import NamedMetrics
from .design import Design
from .metrics import Metrics
from .moments import Moments

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Least share of signal.
_LEAST = 0.05


def split(estimates: Estimates, seed: int) -> tuple[Estimates, Estimates] | None:
    """The two halves that a forecast uses; ``None`` where the estimates have no noise to split."""
    return split_noise(estimates, np.random.default_rng([seed & 0xFFFFFFFFFFFFFFFF, 0x5B117]))


def only(estimates: Estimates, members: Ints) -> Estimates:
    """Estimates of some clients."""
    sigmas = estimates.sigmas[members] if estimates.sigmas.ndim == 2 else estimates.sigmas
    return replace(
        estimates,
        clients=tuple(estimates.clients[i] for i in members),
        cells=estimates.cells[members],
        totals=estimates.totals[members],
        marginals=estimates.marginals[members],
        sigmas=sigmas,
        posterior=None,
        released=None if estimates.released is None else estimates.released[members],
    )


def covariance(design: Design, found: Sequence[Moments]) -> tuple[Floats, Floats]:
    """Mean and covariance of the model's inputs over all clients' people, of several estimates of them."""
    gram = np.sum([part.gram.sum(axis=0) for part in found], axis=0)
    inputs = design.projection.T @ gram @ design.projection / gram[0, 0]
    mean = inputs[0].copy()
    return mean, np.asarray(inputs - np.outer(mean, mean))


def signal(first: Floats, second: Floats, spread: Floats) -> float:
    """λ of two coefficient vectors under a covariance of inputs, between a least value and 1.

    Of several classes the scores are taken around their mean over classes.
    """
    mine, other = (_around_mean(beta.reshape(-1, len(spread))) for beta in (first, second))

    def product(one: Floats, two: Floats) -> float:
        return float(sum(a @ spread @ b for a, b in zip(one, two, strict=True)))

    both = float(np.sqrt(max(product(mine, mine), 0.0) * max(product(other, other), 0.0)))
    return float(np.clip(product(mine, other) / both, _LEAST, 1.0)) if both > 0 else 1.0


def _around_mean(beta: Floats) -> Floats:
    """Coefficients of every class around their mean; those of two classes, or of a number, as they are."""
    if len(beta) == 1:
        return beta
    every = np.concatenate([np.zeros((1, beta.shape[1])), beta])
    return np.asarray(every - every.mean(axis=0))


def mean_metrics(found: Sequence[Metrics | NamedMetrics]) -> Metrics | NamedMetrics:
    """Metrics averaged over halves."""

    def average(name: str) -> object:
        values = [getattr(one, name) for one in found]
        if isinstance(values[0], dict):
            return {key: float(np.mean([value[key] for value in values])) for key in values[0]}
        mean = np.mean(values, axis=0)
        return tuple(mean.tolist()) if isinstance(values[0], tuple) else float(mean)

    kind = type(found[0])
    return kind(**{name: average(name) for name in kind.__struct_fields__})  # type: ignore[arg-type]
