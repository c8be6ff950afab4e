"""Class anchor: the pool's own model of several classes, and how a federation's tables move it.

The expansion of `anchor`, for softmax regression. With the first class as reference and p_c(z) the pool's chance of
class c, a federation W has

    gradient  g_c = Σ_W z ([y = c] − p_c(z))
    curvature H_cd = Σ_W z zᵀ p_c (δ_cd − p_d)

Among the records with indicator a, p_c is approximated by an additive function of z, and p_c(δ_cd − p_d) by its mean
among the records with indicators a and b, so both sums are linear in the pair tables. For two classes these are the
formulas of `anchor`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..objective.sample import Sample
from .anchor import additive, centred, pair_sums, penalties
from .design import Design
from .moments import Moments

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ClassAnchor:
    """The pool's model of several classes and the maps from tables to gradient and curvature.

    Parameters
    ----------
    beta
        Shape (outputs · inputs,): the coefficients of each class but the first, one after another.
    curvature
        Shape (outputs, outputs, width, width): means of p_c(δ_cd − p_d).
    fitted
        Shape (outputs, width, width): additive approximations of p_c, a row for each indicator.
    """

    beta: Floats
    curvature: Floats
    fitted: Floats

    @classmethod
    def softmax(cls, design: Design, sample: Sample, pool: Moments) -> ClassAnchor:
        """Fit the pool's model on the sample, and the approximations around it.

        The fit is centred: the pool's own tables give gradient 0, so the pool's forecast is the anchor.
        """
        cells, counts = compress(design, sample)
        beta = fit_classes(design.matrix(cells.codes), counts)
        chance = chances(design.matrix(cells.codes) @ beta.T)
        ones = design.indicators(cells.codes)
        outputs = len(beta)
        curvature = np.empty((outputs, outputs, design.width, design.width))
        for c in range(outputs):
            for d in range(c + 1):
                product = chance[:, c + 1] * (float(c == d) - chance[:, d + 1])
                gram, weighted = pair_sums(ones, cells.weights, product, design.width)
                # Cells the sample has hardly seen fall back to the mean curvature.
                curvature[c, d] = curvature[d, c] = (weighted + 2e-4 * weighted[0, 0]) / (gram + 2e-4)
        fitted = additive(ones, cells.weights, chance[:, 1:], gram)
        for c, cross in enumerate(_by_class(pool)):
            centred(fitted[c], cross, pool)
        return cls(beta.ravel(), curvature, fitted)

    def rows(self, design: Design, found: Moments) -> tuple[Floats, Floats]:
        """Lower triangle of the curvature and gradient: shapes (..., triangle) and (..., coefficients)."""
        project, p = design.projection, design.inputs
        outputs = len(self.fitted)
        size = outputs * p
        triangle = np.empty((*found.totals.shape, size * (size + 1) // 2))
        gradient = np.empty((*found.totals.shape, size))
        cross = _by_class(found)
        inner, whole = np.tril_indices(p), np.indices((p, p)).reshape(2, -1)
        for c in range(outputs):
            summed = cross[..., c, :] - (self.fitted[c] * found.gram).sum(axis=-1)
            gradient[..., c * p : (c + 1) * p] = summed @ project
            for d in range(c + 1):
                block = project.T @ (self.curvature[c, d] * found.gram) @ project
                i, j = inner if c == d else whole
                line = c * p + i
                triangle[..., line * (line + 1) // 2 + d * p + j] = block[..., i, j]
        return triangle, gradient


def _by_class(found: Moments) -> Floats:
    """Σ z [y = c] of each class but the first, shape (..., outputs, width); two classes have one line, not a stack."""
    return found.cross if found.cross.ndim == found.gram.ndim else found.cross[..., None, :]


def compress(design: Design, sample: Sample) -> tuple[Sample, Floats]:
    """The distinct records as the design sees them, with their weights by class: shape (records, classes)."""
    sizes, target = design.schema.sizes, design.schema.target
    key = np.zeros(sample.codes.shape[1], np.int64)
    for v in design.variables:
        _, first, key = np.unique(key * sizes[v] + sample.codes[v], return_index=True, return_inverse=True)
    classes = len(design.labels.names)
    counts = np.bincount(key * classes + sample.codes[target], sample.weights, len(first) * classes).reshape(
        -1, classes
    )
    return Sample(sample.codes[:, first], counts.sum(axis=1)), np.asarray(counts, dtype=np.float64)


def fit_classes(inputs: Floats, counts: Floats, *, steps: int = 50) -> Floats:
    """Ridge softmax regression by Newton's method: coefficients of each class but the first, (outputs, inputs).

    Parameters
    ----------
    counts
        Shape (records, classes): weight of each record in each class.
    """
    p, classes = inputs.shape[1], counts.shape[1]
    outputs = classes - 1
    weights = counts.sum(axis=1)
    # Of the scores around their mean, which treats all classes alike; for two classes the ridge itself.
    alike = 2.0 * (np.eye(outputs) - 1.0 / classes)
    penalty = np.kron(alike, np.diag(penalties(p)))
    beta = np.zeros((outputs, p))
    for _ in range(steps):
        chance = chances(inputs @ beta.T)
        hessian = penalty.copy()
        for c in range(outputs):
            for d in range(c + 1):
                product = weights * chance[:, c + 1] * (float(c == d) - chance[:, d + 1])
                if c == d:
                    product = np.maximum(product, 1e-9 * weights)
                block = (inputs * product[:, None]).T @ inputs
                hessian[c * p : (c + 1) * p, d * p : (d + 1) * p] += block
                if c != d:
                    hessian[d * p : (d + 1) * p, c * p : (c + 1) * p] += block.T
        gradient = (counts[:, 1:] - weights[:, None] * chance[:, 1:]).T @ inputs
        step = np.linalg.solve(hessian, gradient.ravel() - penalty @ beta.ravel())
        # A long step can overshoot where classes separate; ridge keeps the optimum finite.
        step *= min(1.0, 5.0 / max(float(np.abs(step).max()), 1e-300))
        beta = beta + step.reshape(outputs, p)
        if np.abs(step).max() < 1e-8:
            break
    return beta


def chances(scores: Floats) -> Floats:
    """Softmax of scores against the first class: shape (records, outputs) to (records, classes)."""
    whole = np.concatenate([np.zeros((len(scores), 1)), scores], axis=1)
    whole = np.exp(whole - whole.max(axis=1, keepdims=True))
    return np.asarray(whole / whole.sum(axis=1, keepdims=True), dtype=np.float64)
