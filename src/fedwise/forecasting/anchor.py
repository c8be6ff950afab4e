"""Anchor: the pool's own model, and how a federation's tables move it.

Logistic regression on a federation W solves Σ_W z(y − p(z)) = 0. The tables give Σ_W z y, but Σ_W z·p(z) only
for a p that is additive. So the model is expanded about the pool's solution β₀, fitted on the sample:

    gradient  g_W = b_W − Σ_W z p₀(z),     p₀ = logistic(β₀ᵀz)
    curvature H_W = Σ_W z zᵀ p₀(1 − p₀)

and both sums are written in the pair tables. Among the records with indicator a, p₀ is approximated by an
additive function c_aᵀz (weighted least squares on the sample), and p₀(1 − p₀) by its mean h̄_ab among the
records with indicators a and b:

    g_W[a] = b_W[a] − Σ_l c_a[l]·G_W[a,l],      H_W[a,b] = h̄_ab·G_W[a,b]

Linear in the tables: clients' gradients and curvatures add up, and noise stays unbiased. One Newton step from
β₀ is the federation's model. The linear link is the case p₀ = 0, h̄ = 1, β₀ = 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..machine_code import compiled
from ..objective.sample import Sample
from .design import Design
from .moments import Moments

Floats = npt.NDArray[np.float64]

#: Ridge of the pool's own fit, in records: enough to keep empty levels at 0.
_RIDGE = 1e-4
#: Ridge of the additive fits within one level.
_LEVEL_RIDGE = 3e-4
#: Above this many indicators the fits within a level would need too much memory: one fit serves all.
_MAX_TENSOR = 256


@dataclass(frozen=True, eq=False)
class Anchor:
    """The pool's model and the maps from tables to gradient and curvature.

    Parameters
    ----------
    beta
        Shape (inputs,): β₀.
    curvature
        Shape (width, width): h̄.
    fitted
        Shape (width, width): row a is c_a.
    """

    beta: Floats
    curvature: Floats
    fitted: Floats

    @classmethod
    def linear(cls, design: Design) -> Anchor:
        """The linear model needs no expansion: H = G and g = b."""
        return cls(
            np.zeros(design.inputs),
            np.ones((design.width, design.width)),
            np.zeros((design.width, design.width)),
        )

    @classmethod
    def regression(cls, design: Design, pool: Moments) -> Anchor:
        """The pool's own linear model, from which a step of any federation is exact: g = b − G·β₀."""
        project = design.projection
        penalty = np.full(design.inputs, _RIDGE * float(pool.totals))
        penalty[0] = 1e-9 * float(pool.totals)
        beta = np.linalg.solve(project.T @ pool.gram @ project + np.diag(penalty), pool.cross @ project)
        fitted = np.tile(project @ beta, (design.width, 1))
        return cls(np.asarray(beta, dtype=np.float64), np.ones((design.width, design.width)), fitted)

    @classmethod
    def logistic(cls, design: Design, sample: Sample, pool: Moments) -> Anchor:
        """Fit the pool's logistic model on the sample, and the approximations around it.

        The fit is centred: the pool's own tables give gradient 0, so the pool's forecast is β₀.
        """
        beta, scores = fit(design, sample)
        chance = 1.0 / (1.0 + np.exp(-scores))
        ones = design.indicators(sample.codes)
        gram, weighted = pair_sums(ones, sample.weights, chance * (1 - chance), design.width)
        mean = weighted[0, 0]
        # Cells the sample has hardly seen fall back to the mean curvature.
        curvature = (weighted + 2e-4 * mean) / (gram + 2e-4)
        fitted = additive(ones, sample.weights, chance[:, None], gram)[0]
        centred(fitted, pool.cross, pool)
        return cls(beta, curvature, fitted)

    def gradient(self, found: Moments) -> Floats:
        """Σ z (y − p₀), shape (..., width)."""
        return np.asarray(found.cross - (self.fitted * found.gram).sum(axis=-1), dtype=np.float64)

    def hessian(self, found: Moments) -> Floats:
        """Σ z zᵀ p₀(1 − p₀), shape (..., width, width)."""
        return np.asarray(self.curvature * found.gram, dtype=np.float64)

    def rows(self, design: Design, found: Moments) -> tuple[Floats, Floats]:
        """Lower triangle of the curvature and gradient, of the model's inputs: (..., triangle) and (..., inputs)."""
        project = design.projection
        hessian = project.T @ self.hessian(found) @ project
        low = np.tril_indices(design.inputs)
        return hessian[..., low[0], low[1]], self.gradient(found) @ project


def fit(design: Design, sample: Sample, *, steps: int = 25) -> tuple[Floats, Floats]:
    """Ridge logistic regression on a weighted sample by Newton's method: coefficients and scores."""
    inputs = design.matrix(sample.codes)
    labels = sample.codes[design.schema.target].astype(np.float64)
    beta = np.zeros(design.inputs)
    penalty = penalties(design.inputs)
    scores = np.zeros(len(labels))
    for _ in range(steps):
        chance = 1.0 / (1.0 + np.exp(-scores))
        weight = sample.weights * np.maximum(chance * (1 - chance), 1e-9)
        hessian = (inputs * weight[:, None]).T @ inputs + np.diag(penalty)
        step = np.linalg.solve(hessian, inputs.T @ (sample.weights * (labels - chance)) - penalty * beta)
        # A long step can overshoot where classes separate; ridge keeps the optimum finite.
        step *= min(1.0, 5.0 / max(float(np.abs(step).max()), 1e-300))
        beta = beta + step
        scores = inputs @ beta
        if np.abs(step).max() < 1e-8:
            break
    return beta, scores


def penalties(inputs: int) -> Floats:
    """Ridge of the pool's own fit for each input; the intercept, which comes first, is free."""
    penalty = np.full(inputs, _RIDGE)
    penalty[0] = 1e-9
    return penalty


def additive(ones: npt.NDArray[np.int64], weights: Floats, values: Floats, gram: Floats) -> Floats:
    """Additive functions of the indicators that fit `values` among the records of each level.

    Parameters
    ----------
    ones
        Shape (records, variables + 1): the indicators of each record.
    values
        Shape (records, outputs).
    gram
        Shape (width, width): Σ w z zᵀ of the records.

    Returns
    -------
    Floats
        Shape (outputs, width, width): row a of each is c_a.
    """
    width = len(gram)
    ridge = np.full(width, 1e-6)
    ridge[0] = 1e-12
    level = np.full(width, _LEVEL_RIDGE)
    level[0] = 1e-9
    out = np.empty((values.shape[1], width, width))
    for c, value in enumerate(values.T):
        moment = np.zeros(width)
        np.add.at(moment, ones, (weights * value)[:, None])
        common = np.linalg.solve(gram + np.diag(ridge), moment)
        out[c] = np.tile(common, (width, 1))
        if width <= _MAX_TENSOR:
            tensor, right = level_sums(ones, weights, value - common[ones].sum(axis=1), width)
            tensor[:, range(width), range(width)] += level
            out[c] += np.linalg.solve(tensor, right[:, :, None])[:, :, 0]
    return out


def centred(fitted: Floats, cross: Floats, pool: Moments) -> None:
    """Spread what the pool's own gradient lacks over the records of each level. In place."""
    gradient = cross - (fitted * pool.gram).sum(axis=1)
    seen = pool.gram[0] > 1e-6 * pool.totals
    fitted[seen, 0] += gradient[seen] / pool.gram[0][seen]


@compiled()
def pair_sums(
    ones: npt.NDArray[np.int64], weights: Floats, values: Floats, width: int
) -> tuple[Floats, Floats]:
    """Σ w z zᵀ and Σ w v z zᵀ of records given by the positions of their ones."""
    gram = np.zeros((width, width))
    weighted = np.zeros((width, width))
    for r in range(ones.shape[0]):
        for i in range(ones.shape[1]):
            for j in range(ones.shape[1]):
                gram[ones[r, i], ones[r, j]] += weights[r]
                weighted[ones[r, i], ones[r, j]] += weights[r] * values[r]
    return gram, weighted


@compiled()
def level_sums(
    ones: npt.NDArray[np.int64], weights: Floats, values: Floats, width: int
) -> tuple[Floats, Floats]:
    """Σ w z_a z zᵀ and Σ w z_a z v for every indicator a."""
    tensor = np.zeros((width, width, width))
    right = np.zeros((width, width))
    for r in range(ones.shape[0]):
        for a in range(ones.shape[1]):
            level = tensor[ones[r, a]]
            for i in range(ones.shape[1]):
                right[ones[r, a], ones[r, i]] += weights[r] * values[r]
                for j in range(ones.shape[1]):
                    level[ones[r, i], ones[r, j]] += weights[r]
    return tensor, right
