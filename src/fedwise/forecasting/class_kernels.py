"""Class kernels: score many federations' models of several classes, or of a number, on the target's sample.

The chances of the records decide the precision: single for searches, double for all records.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..machine_code import compiled
from .kernels import Scorer, Solver, fill_table, level_scores, solve

Floats = npt.NDArray[np.float64]


@compiled()
def _tables(
    solver: Solver, spec: Scorer, beta: Floats, table: npt.NDArray[np.floating[Any]], shift: Floats
) -> None:
    """Look-up tables of every output, (outputs, entries), and its intercept."""
    inputs = solver.projection.shape[1]
    levels = np.empty(solver.projection.shape[0])
    for c in range(table.shape[0]):
        level_scores(solver.projection, beta[c * inputs : (c + 1) * inputs], levels)
        fill_table(spec, levels, table[c])
        shift[c] = levels[0]


@compiled()
def decide(scores: Floats, ramp: float, decision: npt.NDArray[np.int64]) -> float:
    """The two classes of the highest scores, into `decision`, and the first one's part of the decision.

    A lead of less than `ramp` counts in part, which smooths the steps that a finite sample makes.
    """
    first, second = 0, 1
    if scores[1] > scores[0]:
        first, second = 1, 0
    for c in range(2, scores.size):
        if scores[c] > scores[first]:
            first, second = c, first
        elif scores[c] > scores[second]:
            second = c
    decision[0], decision[1] = first, second
    return float(min(0.5 + 0.5 * (scores[first] - scores[second]) / ramp, 1.0))


@compiled()
def batch_confusions(solver: Solver, spec: Scorer, sums: Floats) -> tuple[Floats, Floats]:
    """Decisions and costs of each summed row.

    Returns
    -------
    rates, costs
        Shape (batch, groups, classes, classes): share of each group and class that is decided for each class. Shape
        (batch, groups, classes, 2): mean log loss and squared error of the chances.
    """
    p, classes = solver.beta.size, spec.chance.shape[1]
    groups, batch = spec.groups.size - 1, sums.shape[0]
    work, beta = np.empty((p, p)), np.empty(p)
    table = np.empty((classes - 1, spec.parts.shape[0]), spec.chance.dtype)
    shift, scores, power = np.empty(classes - 1), np.zeros(classes), np.empty(classes)
    decision = np.zeros(2, np.int64)
    rates, costs = np.zeros((batch, groups, classes, classes)), np.zeros((batch, groups, classes, 2))
    for b in range(batch):
        solve(solver, sums[b], work, beta)
        _tables(solver, spec, beta, table, shift)
        for g in range(groups):
            mass = np.zeros(classes)
            for r in range(spec.groups[g], spec.groups[g + 1]):
                for c in range(1, classes):
                    total = shift[c - 1]
                    for i in range(spec.lookup.shape[0]):
                        total += table[c - 1, spec.lookup[i, r]]
                    scores[c] = total
                part = decide(scores, spec.ramp, decision)
                top = scores[decision[0]]
                whole, square = 0.0, 0.0
                for c in range(classes):
                    power[c] = np.exp(scores[c] - top)
                    whole += power[c]
                    square += power[c] ** 2
                square /= whole**2
                logarithm = np.log(whole)
                for c in range(classes):
                    chance = spec.chance[r, c]
                    mass[c] += chance
                    rates[b, g, c, decision[0]] += chance * part
                    rates[b, g, c, decision[1]] += chance * (1.0 - part)
                    costs[b, g, c, 0] += chance * (top + logarithm - scores[c])
                    costs[b, g, c, 1] += chance * (square - 2.0 * power[c] / whole + 1.0)
            for c in range(classes):
                if mass[c] > 0.0:
                    rates[b, g, c] /= mass[c]
                    costs[b, g, c] /= mass[c]
    return rates, costs


@compiled()
def batch_errors(solver: Solver, spec: Scorer, edges: Floats, sums: Floats) -> Floats:
    """Mean error, absolute error and squared error in each group and bin: shape (batch, groups, bins, 3).

    A number lies anywhere in its bin with the same chance.
    """
    p, bins = solver.beta.size, spec.chance.shape[1]
    groups, batch = spec.groups.size - 1, sums.shape[0]
    work, beta = np.empty((p, p)), np.empty(p)
    table = np.empty((1, spec.parts.shape[0]), spec.chance.dtype)
    shift, off = np.empty(1), np.empty(3)
    out = np.zeros((batch, groups, bins, 3))
    for b in range(batch):
        solve(solver, sums[b], work, beta)
        _tables(solver, spec, beta, table, shift)
        for g in range(groups):
            mass = np.zeros(bins)
            for r in range(spec.groups[g], spec.groups[g + 1]):
                told = shift[0]
                for i in range(spec.lookup.shape[0]):
                    told += table[0, spec.lookup[i, r]]
                for c in range(bins):
                    errors(told, edges[c, 0], edges[c, 1], off)
                    mass[c] += spec.chance[r, c]
                    for i in range(3):
                        out[b, g, c, i] += spec.chance[r, c] * off[i]
            for c in range(bins):
                if mass[c] > 0.0:
                    out[b, g, c] /= mass[c]
    return out


@compiled()
def errors(told: float, low: float, high: float, out: Floats) -> None:
    """Mean error, absolute error and squared error of a prediction for numbers spread evenly over a bin."""
    width = high - low
    out[0] = told - (low + high) / 2
    out[1] = abs(out[0])
    if low < told < high:
        out[1] = ((told - low) ** 2 + (high - told) ** 2) / (2 * width)
    out[2] = out[0] ** 2 + width**2 / 12
